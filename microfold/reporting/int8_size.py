"""Estimate of the memory that a float32 model would need in int8, without a quantisation."""

from __future__ import annotations

from msgspec import Struct

from microfold.ir.types import DType
from microfold.program import Program

# Bytes of a float32 element per byte of an int8 element.
_RATIO = 4


class Int8Size(Struct, frozen=True):
    """Estimated sizes in bytes.

    Attributes:
        weights: constants as int8 files store them: biases and other vectors as int32, all others as int8.
        arena: a quarter of the float model's arena.
    """

    weights: int
    arena: int


def int8_size(program: Program) -> Int8Size | None:
    """Return the estimated sizes of a model in int8; None if its real numbers are not all float32.

    Models with loops, branches or state are not estimated, either: quantisers do not support all of them.
    """
    graph = program.source
    values = [*graph.inputs, *graph.constants, *(value for node in graph.nodes for value in node.outputs)]
    if graph.subgraphs or graph.state or any(value.type.quant is not None for value in values):
        return None
    if {value.type.dtype for value in values if not value.type.dtype.is_integer} != {DType.FLOAT32}:
        return None
    if any(value.type.dtype is not DType.FLOAT32 for value in (*graph.inputs, *graph.outputs)):
        return None
    weights = [array for value, array in graph.constants.items() if value.type.dtype is DType.FLOAT32]
    size = sum(array.size if array.ndim > 1 else array.nbytes for array in weights)
    return Int8Size(size, -(-program.arena.size // _RATIO)) if weights else None
