"""Every function of float32 elements has an expression in C, and that computes what the reference does."""

from __future__ import annotations

import pytest

from microfold.ir.types import DType, ElementType
from microfold.kernels.elementwise import float_expressions, plain_expressions
from microfold.kernels.names import TYPES
from microfold.ops.elementwise.float_binary import float_binary_operators
from microfold.ops.elementwise.plain_binary import plain_binary_operators
from microfold.ops.elementwise.unary import FUNCTIONS, Unary
from tests.kernels import graphs
from tests.kernels.portable import check_all

FLOAT = ElementType(DType.FLOAT32)


def test_every_function_has_an_expression() -> None:
    assert float_expressions.UNARY.keys() == FUNCTIONS.keys()
    wanted = {f"f32_{op.name}__c" for op in float_binary_operators()}
    wanted |= {f"{TYPES[dtype]}_{op.name}__c" for op in plain_binary_operators() for dtype in op.dtypes}
    assert wanted <= (float_expressions.BINARY | plain_expressions.PLAIN).keys()


def test_expressions_compute_the_reference() -> None:
    x, y = (graphs.float_input(name, (3, 5)) for name in "xy")
    row = graphs.float_input("row", (5,))
    cases = {name: graphs.one_node_graph(Unary(name, FLOAT), [x], {}) for name in FUNCTIONS}
    cases["clipped"] = graphs.one_node_graph(Unary("sin", FLOAT), [x], {}, graphs.RELU)
    for op in float_binary_operators():
        cases[op.name] = graphs.one_node_graph(op(FLOAT), [x, y], {})
        cases[f"{op.name}_of_a_row"] = graphs.one_node_graph(op(FLOAT), [x, row], {}, graphs.RELU6)
    check_all(cases)


@pytest.mark.parametrize(
    ("expression", "calls"),
    [
        ("sqrtf(x)", True),
        ("1.0f / (1.0f + expf(-x))", True),
        ("mf_clamp_float(fabsf(x), 0.0f, 1.0f)", True),
        ("x * mf_clamp_float(x + 3.0f, 0.0f, 6.0f) / 6.0f", False),
        ("(int32_t)((uint32_t)a + (uint32_t)b)", False),
        ("a > b ? a : (b)", False),
    ],
)
def test_expressions_that_need_math_h(expression: str, calls: bool) -> None:
    assert float_expressions.calls_math(expression) == calls
