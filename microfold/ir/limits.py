"""How large anything in a model may be.

The bounds lie far above what microcontrollers hold, and far below where an integer overflows: generated C
counts elements and bytes in `int32_t`, and no index, offset or pointer difference leaves `MAX_ELEMENTS` elements
of at most 8 bytes, 2^27. Type rules and `microfold.ir.graph.verify` hold every graph to them, wherever it
comes from; the importer of files checks what it reads before it makes a graph of it.
"""

from __future__ import annotations

import math

MAX_RANK = 8
# Of a tensor, of an image with its padding, and of the area that a window's steps cover.
MAX_ELEMENTS = 1 << 24
# Of all constants, and of all values in RAM.
MAX_BYTES = 1 << 30
# Of one operator: minutes on the fastest core.
MAX_MACS = 1 << 34
# Of a graph, those of its subgraphs not counted.
MAX_NODES = 1 << 16
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
