"""Every operator with every activation behind it: a kernel computes what the passes make of the two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.errors import TypeRuleError, UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import ElementType
from microfold.kernels.selection.node_cost import NodeCosts
from microfold.kernels.selection.objective import Objective
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.hard_swish import HardSwish
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.movement.reshape import Reshape
from microfold.passes.context import PassContext
from microfold.transform.placement.fuse_ops import FuseOps
from microfold.transform.simplify.hoist_clip import hoist_clip
from tests.frontend.drawn_types import OPERATORS, draw_model
from tests.ops.drawn_operators import SIGNED_UNIT, UNIT
from tests.sampling import quick

INF = float("inf")


def _activations(element: ElementType) -> Iterator[Op]:
    """Yield activations of the element type."""
    yield from (Clip(0.0, INF), Clip(0.0, 6.0), Clip(-1.0, 1.0), Clip(-INF, 0.5))
    yield from (LeakyRelu(0.25, element), HardSwish(element))
    if not element.dtype.is_float:
        yield Relu(0.0, 6.0, element)
    if element.dtype in UNIT:
        yield Logistic(ElementType(element.dtype, UNIT[element.dtype]))
        yield Tanh(ElementType(element.dtype, SIGNED_UNIT[element.dtype]))


def _with_activation(graph: Graph, result: Value, *, reshaped: bool) -> Iterator[Graph]:
    """Yield the graph with each activation behind a result, or behind a reshape of it."""
    nodes, value = graph.nodes, result
    if reshaped:
        nodes = (*nodes, make_node(Reshape((result.type.size,)), [result], ["flat"]))
        value = nodes[-1].output
    for op in _activations(result.type.element):
        try:
            last = make_node(op, [value], ["activated"])
        except TypeRuleError:
            continue
        yield replace(graph, nodes=(*nodes, last), outputs=(last.output,))


def _graphs(name: str) -> Iterator[Graph]:
    """Yield graphs of an operator of the file format and an activation, of all element types."""
    for dtype in ("f4", "f2", "i1", "u1", "i2", "i4", "i8", "?"):
        try:
            graph = import_model(draw_model(name, dtype, 0)[0])
        except (UnsupportedModelError, KeyError, TypeError, ValueError):  # it is not drawn of this type
            continue
        for result in graph.producers().keys() & {*graph.outputs}:
            for reshaped in (False, True):
                yield from _with_activation(graph, result, reshaped=reshaped)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("core", quick(["host", "cortex-m55"]))
def test_a_kernel_computes_it(name: str, core: str) -> None:
    cost = NodeCosts(target.load(core), Objective(cycles=3.0, flash=1.0, arena=1.0))
    context = PassContext(node_cost=cost, node_scratch=cost.scratch)
    for graph in _graphs(name):
        if any(cost(node, graph) is None for node in graph.nodes):
            continue
        result = FuseOps()(hoist_clip(graph, context), context)
        for node in result.nodes:
            assert cost(node, result) is not None, f"{node} of {graph}"
