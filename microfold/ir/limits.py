"""Limits on the size of everything in a model.

The limits are far above the memory of microcontrollers, and far below the sizes at which integers overflow.
Generated C counts elements and bytes in `int32_t`. Every index, offset and pointer difference is at most
`MAX_ELEMENTS` elements of 8 bytes, 2^27. Type rules and `microfold.ir.graph.verify` enforce the limits for
every graph; the importer checks a file's contents before it builds one.
"""

from __future__ import annotations

import math

MAX_RANK = 8
# Elements of a tensor, of an image with its padding, and of the area that the positions of a window cover.
MAX_ELEMENTS = 1 << 24
# Height and width of a resized image, because kernels have tables with an entry for each row and column.
MAX_RESIZED = 1 << 14
# Bytes of all constants, and bytes of the arena.
MAX_BYTES = 1 << 30
# Elementary operations of one operator, mostly multiply-accumulates: minutes on the fastest core.
MAX_OPERATIONS = 1 << 34
# Nodes of a graph, excluding its subgraphs.
MAX_NODES = 1 << 16
# Depth to which subgraphs can be nested.
MAX_DEPTH = 32
# Constant folding: limits of one evaluation, and of all evaluations of one pass together.
FOLD_OPERATIONS, FOLD_BYTES = 1 << 25, 1 << 26
FOLD_OPERATIONS_TOTAL, FOLD_BYTES_TOTAL = 1 << 28, 1 << 27
# Elements that constant folding may add in one pass, plus as many as the constants of the graph have. A small
# file must not become a large program.
FOLD_GROWTH = 1 << 18
# Bytes of constants that an import may create: `MADE_BYTES` plus `MADE_FACTOR` times the size of the file.
MADE_BYTES, MADE_FACTOR = 1 << 20, 16
# Channels that all nodes of a graph read and write. Above this limit, ranges are not tracked per channel and
# no channel is pruned. The analysis needs some 100 bytes and 0.5 us for each channel; models for
# microcontrollers have some 10^4.
TRACKED_CHANNELS = 1 << 20
# Rows and bytes of a streamed image: a streaming plan has steps for each row, and is checked byte by byte.
STREAMED_ROWS, STREAMED_BYTES = 1 << 14, 1 << 24
# Pixels of a result up to which its overlap with the input is computed. Each pixel needs 200 bytes of memory.
OVERLAP_PIXELS = 1 << 20
# Magnitude of integer attributes: C's `int32_t`.
MAX_INTEGER = (1 << 31) - 1


def shape_fault(shape: tuple[int, ...]) -> str:
    """Return the fault of a value's shape, or "" if it is valid."""
    if len(shape) > MAX_RANK:
        return f"a tensor has at most {MAX_RANK} axes; it has {len(shape)}"
    if min(shape, default=0) < 0:
        return f"extents must not be negative; they are {list(shape)}"
    if math.prod(shape) > MAX_ELEMENTS:
        return f"a tensor has at most {MAX_ELEMENTS} elements; {list(shape)} has {math.prod(shape)}"
    return ""
