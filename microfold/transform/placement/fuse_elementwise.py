"""Fuses elementwise operators of float32 into one loop.

    %a: float32[1,8,8,4] = mul(%x, %scale)
    %b: float32[1,8,8,4] = add(%a, %z)
    %y: float32[1,8,8,4] = tanh(%b) {…}
        ->
    %y: float32[1,8,8,4] = expression(%x, %scale, %z) {
      steps=(("mul", (0, 1), ()), ("add", (3, 2), ()), ("tanh", (4,), ()))
    }

A value that only operators of one loop read is computed in the loop and stays in a register. This includes
chains and values with several readers. Each function is computed as by its own operator, in the same order,
so that all bits stay the same. Fused clips are included, except for clips of convolutions. Operands may be
dequantised and the result quantised in the same loop, which avoids a tensor of floats.

An operator joins the loop of its readers only if one loop needs fewer cycles than two, according to the
target's kernels (`PassContext.node_cost`). If some functions have vector instructions and others call a
library, separate loops may be faster. It also does not join if keeping its operands until then needs more RAM
than keeping its result. This is checked in the order of the graph and depth first, because the plan may use
either. Every loop is separate code: if flash is short (`PassContext.save_flash`), the pass does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe, make_node
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import DType
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.expression import Call, Expression, function_of
from microfold.passes.context import NodeCost, PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.simplify.topological_sort import depth_first_from_outputs

# Maximum number of functions of a loop, so that all live values fit in registers.
_MOST_STEPS = 24


@function_pass(opt_level=1)
def fuse_elementwise(graph: Graph, context: PassContext) -> Graph:
    """Fuse float32 operators that read each other's results into loops."""
    cost = context.node_cost
    if cost is None or not any(map(_computes, graph.nodes)):
        return graph
    if context.save_flash:
        context.declined(f"graph @{graph.name}", "each loop would need separate code, and flash is short")
        return graph
    loops = _Loops(graph, context, cost)
    if not loops.several:
        return graph

    def rewrite(site: RewriteSite[None]) -> Replacement:
        loop = loops.several.get(site.node)
        if loop is None:
            return None
        op, operands = loop.expression()
        return site.emit(op, *(site.replaced.get(value, value) for value in operands))

    return forward_rewrite(graph, rewrite)


def _computes(node: Node) -> bool:
    """Return whether a node may be part of a loop."""
    return (
        len(node.outputs) == 1
        and None not in node.inputs
        and not any(step.operands for step in node.epilogue)
        and (isinstance(node.op, Quantize) or node.output.type.dtype is DType.FLOAT32)
        and (isinstance(node.op, Dequantize) or node.operands[0].type.dtype is DType.FLOAT32)
        and all(isinstance(op, Quantize) or function_of(op) is not None for op in _operators(node))
        and not (isinstance(node.op, Quantize) and node.epilogue)
    )


def _operators(node: Node) -> list[Op]:
    return [node.op, *(step.op for step in node.epilogue)]


@dataclass
class _Loop:
    """Operators that one loop computes.

    Attributes:
        nodes: nodes in topological order; the last one's result is the loop's.
        cost: estimated cycles.
    """

    nodes: list[Node]
    cost: float
    operands: set[Value] = field(default_factory=set[Value])

    def expression(self) -> tuple[Expression, list[Value]]:
        """Return the loop as one operator, and its operands."""
        inside = {node.output for node in self.nodes}
        operands = list(dict.fromkeys(v for node in self.nodes for v in node.operands if v not in inside))
        place = {value: index for index, value in enumerate(operands)}
        steps: list[Call] = []
        for node in self.nodes:
            taken = tuple(place[value] for value in node.operands)
            for op in _operators(node):
                if isinstance(op, Quantize):
                    return Expression(tuple(steps), op.out), operands
                found = function_of(op)
                assert found is not None
                steps.append((found[0], taken, found[1]))
                taken = (len(operands) + len(steps) - 1,)
            place[node.output] = len(operands) + len(steps) - 1
        return Expression(tuple(steps)), operands

    def steps(self) -> int:
        return sum(map(len, map(_operators, self.nodes)))


class _Loops:
    """Assignment of nodes to loops.

    Attributes:
        several: loops of more than one node, by their last node.
    """

    def __init__(self, graph: Graph, context: PassContext, cost: NodeCost):
        self.graph, self.context, self.cost = graph, context, cost
        self.constants, self.producers = graph.constants, graph.producers()
        depth_first = depth_first_from_outputs(graph)
        self.orders: list[dict[Node | None, int]] = [
            {node: index for index, node in enumerate(nodes)} for nodes in (graph.nodes, depth_first)
        ]
        self.ends = {*graph.outputs, *(state.next for state in graph.state)}
        self.consumers = graph.consumers()
        self.loop_of: dict[Node, _Loop] = {}
        # Depth first: a loop gets the producers of its later operands before the producers of earlier ones.
        for node in reversed(depth_first):
            if _computes(node):
                self._place(node)
        self.several = {loop.nodes[-1]: loop for loop in self.loop_of.values() if len(loop.nodes) > 1}
        for root, loop in self.several.items():
            others = ", ".join(describe(node) for node in loop.nodes[:-1])
            context.fired(root, f"one loop with {others}: about {loop.cost:.0f} cycles")

    def _place(self, node: Node) -> None:
        """Add a node to the loop of its readers, or to a new loop."""
        alone = self.cost(node, self.graph)
        if alone is None:
            return
        joined = self._joined(node, alone)
        if isinstance(joined, str):
            if joined:
                self.context.declined(node, joined)
            joined = _Loop([node], alone, set(node.operands))
        self.loop_of[node] = joined

    def _joined(self, node: Node, alone: float) -> _Loop | str:
        """Return the loop of a node's readers, extended by the node, or why not; "" if they have no loop."""
        value = node.output
        readers = self.consumers.get(value, [])
        loops = {id(loop): loop for reader in readers if (loop := self.loop_of.get(reader)) is not None}
        if not loops:
            return ""
        loop = next(iter(loops.values()))
        if value in self.ends or len(loops) > 1 or any(reader not in self.loop_of for reader in readers):
            return f"%{value.name} has readers outside of the loop of {describe(loop.nodes[-1])}"
        last = loop.nodes[-1]
        if isinstance(node.op, Quantize):
            return f"it quantises an operand of {describe(last)}"
        if value.type.shape != last.output.type.shape:
            return f"it has {value.type.size} elements, and {describe(last)} has {last.output.type.size}"
        if loop.steps() + len(_operators(node)) > _MOST_STEPS:
            return f"the loop of {describe(last)} has {loop.steps()} functions, the maximum"
        if self._takes_ram(node, loop):
            return f"its operands would be kept for {describe(last)}, and need more RAM than its result"
        whole = _Loop([node, *loop.nodes], 0.0, loop.operands | set(node.operands))
        op, operands = whole.expression()
        one = make_node(op, operands, [last.output.name])
        together = self.cost(one, self.graph)
        if together is None:
            return f"no kernel computes it and {describe(last)} in one loop"
        if not self._is_faster(one, together, (alone, loop.cost)):
            return (
                f"one loop with {describe(last)} needs about {together:.0f} cycles; "
                f"separate loops need {alone + loop.cost:.0f}, or were measured to be faster"
            )
        loop.nodes, loop.cost, loop.operands = whole.nodes, together, whole.operands
        return loop

    def _is_faster(self, one: Node, together: float, apart: tuple[float, float]) -> bool:
        """Return whether one loop should replace two.

        Args:
            apart: cycles of the two loops.
        """
        best = "fused" if together < sum(apart) else "apart"
        if together > max(apart):  # otherwise one of them would be free
            best = self.context.choose(one, best, lambda: {"fused": together, "apart": sum(apart)})
        return best == "fused"

    def _takes_ram(self, node: Node, loop: _Loop) -> bool:
        """Return whether keeping operands until the loop runs may need more RAM than keeping the result."""
        kept = {v for v in node.operands if v not in self.constants} - loop.operands
        if sum(value.type.nbytes for value in kept) <= node.output.type.nbytes:
            return False
        inside = {node.output, *(member.output for member in loop.nodes)}
        others = loop.operands - inside - set(node.operands)
        makers = [self.producers.get(value) for value in others]
        return any(place.get(maker, -1) > place[node] for place in self.orders for maker in makers)
