"""A detector's boxes: the C chooses the ones that the reference does."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.types import Array, DType, Quant, TensorType
from microfold.ops.detection_postprocess import DetectionPostprocess
from microfold.program import Program
from microfold.verification import verify
from tests.codegen.contract.scan import assert_declared
from tests.needs import CROSS_TOOLS
from tests.sampling import sampled

FAST = DetectionPostprocess(
    classes=3,
    max_detections=9,
    max_classes=1,
    per_class=5,
    score_threshold=0.25,
    overlap_threshold=0.4,
    scales=(10.0, 10.0, 5.0, 5.0),
    regular=False,
)
REGULAR = replace(FAST, regular=True)
REAL = TensorType(DType.FLOAT32, ())
BYTES = TensorType(DType.INT8, (), Quant.per_tensor(1 / 256, -128))
UNSIGNED = TensorType(DType.UINT8, (), Quant.per_tensor(0.01, 20))
CASES = {
    "fast": (FAST, REAL, REAL, 1, 60),
    "fast_bytes": (FAST, BYTES, BYTES, 0, 60),
    "several_classes": (replace(FAST, max_classes=2), REAL, UNSIGNED, 0, 60),
    "more_rows_than_classes": (replace(FAST, max_classes=4, max_detections=30), REAL, REAL, 0, 25),
    "regular": (REGULAR, REAL, REAL, 1, 60),
    "regular_bytes": (replace(REGULAR, max_detections=3), UNSIGNED, BYTES, 0, 60),
    "regular_all": (replace(REGULAR, max_detections=300, per_class=100, max_classes=2), REAL, REAL, 0, 40),
    "nothing": (replace(REGULAR, score_threshold=2.0), REAL, BYTES, 0, 7),
    "one": (replace(FAST, overlap_threshold=1.0), REAL, REAL, 1, 1),
}


def detector(name: str, *, constant: bool = True) -> Graph:
    """A graph of the operator alone; anchors are constant or an input."""
    op, of_boxes, of_scores, background, count = CASES[name]
    encodings = Value("encodings", of_boxes.with_shape((1, count, 5)))
    scores = Value("scores", of_scores.with_shape((1, count, op.classes + background)))
    anchors = Value("anchors", TensorType(DType.FLOAT32, (count, 4)))
    node = make_node(op, [encodings, scores, anchors], ["boxes", "classes", "best", "count"])
    inputs = (encodings, scores) if constant else (encodings, scores, anchors)
    return Graph(name, inputs, node.outputs, (node,), {anchors: places(count)} if constant else {})


def places(count: int) -> Array:
    rng = np.random.default_rng(3)
    return np.concatenate(
        (rng.uniform(0, 1, (count, 2)), rng.uniform(0.1, 0.5, (count, 2))), 1, dtype=np.float32
    )


def calls(graph: Graph) -> list[list[Array]]:
    """Scores of which many are equal, and what `verify` draws."""
    drawn = verify.input_sets([value.type for value in graph.inputs], 4)
    result = [list(arrays) for arrays in drawn]
    for arrays in result[3:] + result[:1]:
        rng = np.random.default_rng(5)
        if arrays[1].dtype.kind == "f":
            arrays[1] = (np.round(rng.uniform(0, 1, arrays[1].shape) * 16) / 16).astype(np.float32)
        if len(arrays) == 3:
            arrays[2] = places(len(arrays[2]))
    return result


def check(graph: Graph, core: str) -> Program:
    program = compile_graph(graph, target.load(core))
    assert_declared(program)
    found = verify.verify(program, calls(graph))
    assert found.exact, found.differences
    return program


@pytest.mark.parametrize("name", CASES)
def test_the_reference_s_choice(name: str) -> None:
    check(detector(name), "host")


@pytest.mark.parametrize("name", ["fast", "regular"])
def test_anchors_that_are_computed(name: str) -> None:
    check(detector(name, constant=False), "host")


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", sampled(["cortex-m0plus", "cortex-m4"]))
@pytest.mark.parametrize("name", ["several_classes", "regular", "regular_bytes"])
def test_on_cores(name: str, core: str) -> None:
    check(detector(name), core)
