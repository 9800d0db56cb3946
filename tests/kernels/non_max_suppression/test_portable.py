"""Non-maximum suppression: the C chooses the boxes that the reference does, in its order."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.non_max_suppression import NonMaxSuppression
from microfold.verification import verify
from tests.needs import CROSS_TOOLS

BOXES, SIZE = 25, 12
# Limits, thresholds of overlaps and of scores, sigmas.
NUMBERS = (
    (SIZE, 0.5, 0.0, 0.4),
    (SIZE, 0.3, -1.0, 0.0),
    (3, 0.0, 0.2, 0.1),
    (99, 1.0, 0.1, 3.0),
    (0, 0.5, 0.0, 0.4),
    (-2, 0.5, 0.0, -0.4),
    (SIZE, 0.5, 2.0, 0.4),
)


def suppression(*, soft: bool) -> Graph:
    """A graph of the operator alone; all operands are inputs."""
    shapes = {"boxes": (BOXES, 4), "scores": (BOXES,), "limit": (), "overlap": (), "score": (), "sigma": ()}
    values = [
        Value(name, TensorType(DType.INT32 if name == "limit" else DType.FLOAT32, shape))
        for name, shape in shapes.items()
        if soft or name != "sigma"
    ]
    names = ["indices", *(["best"] if soft else []), "count"]
    node = make_node(NonMaxSuppression(SIZE, soft), values, names)
    return Graph("soft" if soft else "hard", tuple(values), node.outputs, (node,), {})


def calls(graph: Graph) -> list[list[Array]]:
    """Boxes on a coarse grid, some of which have no area, with scores of which many are equal."""
    rng = np.random.default_rng(0)
    found: list[list[Array]] = []
    for limit, *numbers in NUMBERS:
        boxes = np.round(rng.random((BOXES, 4)) * 4, len(found) % 2).astype(np.float32)
        scores = (np.round(rng.random(BOXES) * 8) / 8).astype(np.float32)
        scalars = [np.array(number, np.float32) for number in numbers]
        found.append([boxes, scores, np.array(limit, np.int32), *scalars][: len(graph.inputs)])
    return found


@pytest.mark.always
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(
    "core",
    ["host", pytest.param("cortex-m4", marks=[pytest.mark.slow, pytest.mark.needs(*CROSS_TOOLS)])],
)
def test_chooses_as_the_reference(soft: bool, core: str) -> None:
    graph = suppression(soft=soft)
    result = verify.verify(compile_graph(graph, target.load(core)), calls(graph))
    assert result.exact, result.differences
