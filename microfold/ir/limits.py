"""How large anything in a model may be.

The bounds lie far above what microcontrollers hold, and far below where an integer overflows: generated C
counts elements and bytes in `int32_t`, and no index, offset or pointer difference leaves `MAX_ELEMENTS`
elements of at most 8 bytes, 2^27. Type rules and `microfold.ir.graph.verify` hold every graph to them,
wherever it comes from; the importer of files checks what it reads first.
"""

from __future__ import annotations

import math

MAX_RANK = 8
# Of a tensor, of an image with its padding, and of the area that a window's steps cover.
MAX_ELEMENTS = 1 << 24
# Of a resized image's height and width: kernels have tables with an entry for each row and column.
MAX_RESIZED = 1 << 14
# Of all constants, and of the arena.
MAX_BYTES = 1 << 30
# Elementary operations of one operator, multiply-accumulates for most: minutes on the fastest core.
MAX_OPERATIONS = 1 << 34
# Of a graph, those of its subgraphs not counted.
MAX_NODES = 1 << 16
# Subgraphs in subgraphs.
MAX_DEPTH = 32
# What one evaluation at compile time may take, and all those of one pass together.
FOLD_OPERATIONS, FOLD_BYTES = 1 << 25, 1 << 26
FOLD_OPERATIONS_TOTAL, FOLD_BYTES_TOTAL = 1 << 28, 1 << 27
# Elements by which the results of a pass's evaluations may be more than their operands, besides as many as
# all constants of the graph have: a small file must stay small.
FOLD_GROWTH = 1 << 18
# Bytes of constants that an import may make: `MADE_BYTES` and `MADE_FACTOR` times the size of the file.
MADE_BYTES, MADE_FACTOR = 1 << 20, 16
# Channels that the nodes of a graph read and write: if there are more, ranges are not found for each of them,
# and none is pruned. An analysis takes some 100 bytes and 0.5 us for each; models for microcontrollers have
# some 10^4.
TRACKED_CHANNELS = 1 << 20
# Rows of an image that is computed row by row, and bytes of it: a plan has steps for each row, and is checked
# byte by byte.
STREAMED_ROWS, STREAMED_BYTES = 1 << 14, 1 << 24
# Pixels of a result up to which its overlap with the input is computed; each takes 200 bytes of memory.
OVERLAP_PIXELS = 1 << 20
# Of an operator's attributes: what C's `int32_t` holds.
MAX_INTEGER = (1 << 31) - 1


def shape_fault(shape: tuple[int, ...]) -> str:
    """What is wrong with the shape of a value; empty if nothing is."""
    if len(shape) > MAX_RANK:
        return f"a tensor has at most {MAX_RANK} axes; it has {len(shape)}"
    if min(shape, default=0) < 0:
        return f"extents must not be negative; they are {list(shape)}"
    if math.prod(shape) > MAX_ELEMENTS:
        return f"a tensor has at most {MAX_ELEMENTS} elements; {list(shape)} has {math.prod(shape)}"
    return ""
