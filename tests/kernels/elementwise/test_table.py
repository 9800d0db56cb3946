"""Tables of any function of 8-bit values."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.text import parse, to_text
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.ops.elementwise.lookup import Lookup
from microfold.verification import verify
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools


def _graph(source: DType, result: DType, shape: tuple[int, ...]) -> Graph:
    low, high = result.range
    table = tuple(int(n) for n in np.random.default_rng(0).integers(low, high, 256, endpoint=True))
    x = Value("x", TensorType(source, shape, Quant.per_tensor(0.1)))
    node = make_node(Lookup(table, ElementType(result, Quant.per_tensor(0.5))), [x], ["y"])
    return Graph("g", (x,), node.outputs, (node,))


@pytest.mark.parametrize(
    ("source", "result"),
    [
        (DType.INT8, DType.INT8),
        (DType.UINT8, DType.INT8),
        (DType.INT8, DType.UINT8),
        (DType.INT8, DType.INT16),
    ],
)
def test_every_pair_of_types(source: DType, result: DType) -> None:
    graph = _graph(source, result, (16, 16))
    assert to_text(parse(to_text(graph))) == to_text(graph)
    program = compile_graph(graph, target.load("host"))
    result_of = verify.verify(program, verify.input_sets([graph.inputs[0].type], 3))
    assert result_of.exact, result_of.differences


def test_type_rule() -> None:
    out = ElementType(DType.INT8, Quant.per_tensor(0.5))
    with pytest.raises(TypeRuleError, match="must be 256 numbers"):
        Lookup((0,) * 255, out).infer(TensorType(DType.INT8, (4,)))
    with pytest.raises(TypeRuleError, match=r"in \[-128, 127\]"):
        Lookup((128,) * 256, out).infer(TensorType(DType.INT8, (4,)))
    with pytest.raises(TypeRuleError, match="must be int8 or uint8"):
        Lookup((0,) * 256, out).infer(TensorType(DType.INT16, (4,)))


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize(("core", "variant"), [("cortex-m55", "mve"), ("cortex-m4", "c")])
def test_equals_the_reference_on_cores(core: str, variant: str) -> None:
    need_tools(*CROSS_TOOLS)
    types = [(DType.INT8, DType.INT8), (DType.UINT8, DType.INT8), (DType.INT8, DType.UINT8)]
    cases = [_graph(*pair, shape) for pair in types for shape in ((16, 16), (45,), (3,))]
    program = compile_graph(merge(cases), target.load(core))
    assert {layer.kernel.name for layer in program.layers} == {f"s8_lookup__{variant}_table"}
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 4))
    assert result.exact, result.first_difference
