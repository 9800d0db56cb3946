"""Differences between the outputs of a transformed graph and of its source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.types import Array


class Deviation(Struct, frozen=True):
    """Largest difference of one output over all calls.

    Attributes:
        output: index of the output.
        name: name of the output in the model.
        steps: difference in units of the output's integers; None for floating point.
        real: difference as a real number.
        changed, elements: number of elements that differ, and number of all elements.
    """

    output: int
    name: str
    steps: int | None
    real: float
    changed: int
    elements: int


def measure_deviation(source: Graph, made: Graph, calls: Sequence[Sequence[Array]]) -> tuple[Deviation, ...]:
    """Interpret both graphs with the same calls, in sequence, and compare each output.

    Args:
        source: graph as imported.
        made: graph after the passes.
        calls: arrays for the inputs of each call.
    """
    first, second = Interpreter(source), Interpreter(made)
    gaps: list[list[Array]] = [[] for _ in source.outputs]
    for inputs in calls:
        for gap, expected, given in zip(gaps, first.run(*inputs), second.run(*inputs), strict=True):
            wide = np.float64 if expected.dtype.kind == "f" else np.int64
            gap.append(np.where(given == expected, 0, np.abs(given.astype(wide) - expected.astype(wide))))
    return tuple(
        _deviation(index, source, np.stack(gap)) for index, gap in enumerate(gaps) if gap and gap[0].size
    )


def _deviation(index: int, graph: Graph, gaps: Array) -> Deviation:
    value = graph.outputs[index]
    largest = gaps.max()
    is_float = value.type.dtype.is_float
    scale = value.type.quant.scale if value.type.quant is not None else 1.0
    return Deviation(
        output=index,
        name=value.name,
        steps=None if is_float else int(largest),
        real=float(largest) * scale,
        changed=int(np.count_nonzero(gaps)),
        elements=gaps.size,
    )
