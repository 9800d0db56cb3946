"""Operands that broadcast along six axes in turn: all operators of two operands, and select, of all types."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.kernels.selection.node_cost import NodeCosts
from microfold.kernels.selection.objective import Objective
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.float_binary import float_binary_operators
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.plain_binary import plain_binary_operators
from microfold.ops.elementwise.select import Select
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from tests.kernels.cores import KEEP_OPERATORS, assert_exact
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import quick

FIRST, SECOND, CONDITION = (2, 1, 2, 1, 2, 1), (1, 3, 1, 2, 1, 3), (2, 3, 1, 1, 2, 1)
SCALES = {DType.INT8: 0.05, DType.INT16: 0.0002}

MAKERS: list[Callable[[ElementType], Op]] = [
    *(Add, Mul, Prelu, Sub, SquaredDifference),
    *float_binary_operators(),
    *plain_binary_operators(),
    *(lambda _, name=name: Compare(name) for name in ("equal", "less")),
    *(lambda _, op=op: op() for op in (Maximum, Minimum)),
]


def _elements() -> Iterator[ElementType]:
    """Yield all element types, quantised and not."""
    for dtype in DType:
        yield ElementType(dtype)
        if dtype in SCALES:
            yield ElementType(dtype, Quant.per_tensor(SCALES[dtype]))


def _graph(op: Op, *operands: TensorType) -> Graph | None:
    """Return a graph of the operator; None if it does not take the operands."""
    values = [Value(f"x{index}", type) for index, type in enumerate(operands)]
    try:
        node = make_node(op, values, ["y"])
    except TypeRuleError:
        return None
    return Graph("deep", tuple(values), node.outputs, (node,))


def _graphs() -> Iterator[tuple[Graph, Graph]]:
    """Yield graphs with operands of one shape, and the same with operands that broadcast in turn."""
    for element in _elements():
        condition = ElementType(DType.BOOL)
        cases = [(make(element), (element, element)) for make in MAKERS]
        for op, elements in (*cases, (Select(), (condition, element, element))):
            shapes = (FIRST, SECOND) if len(elements) == 2 else (CONDITION, FIRST, SECOND)
            flat = _graph(op, *(TensorType(e.dtype, (4,), e.quant) for e in elements))
            deep = _graph(
                op, *(TensorType(e.dtype, s, e.quant) for e, s in zip(elements, shapes, strict=True))
            )
            if flat is not None and deep is not None:
                yield flat, deep


@pytest.mark.always
@pytest.mark.parametrize("core", quick(["host", "cortex-m4", "cortex-m55"]))
def test_exact(core: str) -> None:
    if core != "host":
        need_tools(*CROSS_TOOLS)
    cost = NodeCosts(target.load(core), Objective(cycles=3.0, flash=1.0, arena=1.0))
    deep = [deep for flat, deep in _graphs() if cost(flat.nodes[0], flat) is not None]
    assert len(deep) > 80
    program = compile_graph(merge(deep), target.load(core), context=KEEP_OPERATORS)
    assert_exact(program, runs=4)
