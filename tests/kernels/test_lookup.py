"""Tables of any function of 8-bit values."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target, verify
from microfold.compiler import compile_graph
from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph, Value, make_node
from microfold.ir.text import parse, to_text
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.ops.lookup import Lookup


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
    low, high = result.range
    table = tuple(int(n) for n in np.random.default_rng(0).integers(low, high, 256, endpoint=True))
    x = Value("x", TensorType(source, (16, 16), Quant.per_tensor(0.1)))
    node = make_node(Lookup(table, ElementType(result, Quant.per_tensor(0.5))), [x], ["y"])
    graph = Graph("g", (x,), node.outputs, (node,))
    assert to_text(parse(to_text(graph))) == to_text(graph)
    program = compile_graph(graph, target.load("host"))
    result_of = verify.verify(program, verify.input_sets([x.type], 3))
    assert result_of.exact, result_of.differences


def test_type_rule() -> None:
    out = ElementType(DType.INT8, Quant.per_tensor(0.5))
    with pytest.raises(TypeRuleError, match="must be 256 numbers"):
        Lookup((0,) * 255, out).infer(TensorType(DType.INT8, (4,)))
    with pytest.raises(TypeRuleError, match=r"in \[-128, 127\]"):
        Lookup((128,) * 256, out).infer(TensorType(DType.INT8, (4,)))
    with pytest.raises(TypeRuleError, match="must be int8 or uint8"):
        Lookup((0,) * 256, out).infer(TensorType(DType.INT16, (4,)))
