"""Replaces calls by the bodies of the called subgraphs.

    graph @g(%x: int8[4]) -> (%y) {                      graph @g(%x: int8[4]) -> (%b) {
      %a: int8[4] = call(%x) {body="f", ...}               %t: int8[4] = clip(%x) {...}
      %y: int8[4] = call(%a) {body="f", ...}        ->     %b: int8[4] = clip(%t) {...}
      subgraph @f = graph @f(%p: int8[4]) -> (%t) {      }
        %t: int8[4] = clip(%p) {...}
      }
    }

Nested calls are also resolved, including calls in the bodies of conditions and loops. A body without other
users disappears with its last call. Bodies for an external code generator (`compiler` is set) stay unchanged.
A state of a body becomes a state of the caller: the second call reads the content that the first call has
left. All bits stay the same. TVM has two passes for this, Inline and InlinePrivateFunctions.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from microfold.ir.graph import Graph, State
from microfold.ir.node import Node, Value, make_node, rewire
from microfold.ir.outline import fresh_name
from microfold.ir.splice import splice
from microfold.ir.types import Array
from microfold.ops.control.call import Call
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass


@module_pass(opt_level=0, mandatory=True)
def inline(graph: Graph, context: PassContext) -> Graph:
    """Resolve every call that does not belong to an external code generator."""
    external = {node.op.body for node in graph.nodes if isinstance(node.op, Call) and node.op.compiler}
    # In the order of the graph, so that decisions in bodies are recorded in this order.
    run = dict.fromkeys(name for node in graph.nodes if not _is_external(node) for name in node.op.bodies)
    bodies = {name: inline.transform(graph.subgraphs[name], context) for name in run}
    changed = {n: body for n, body in bodies.items() if n not in external and body is not graph.subgraphs[n]}
    if changed:
        graph = replace(graph, subgraphs={**graph.subgraphs, **changed})
    if not any(isinstance(node.op, Call) and not _is_external(node) for node in graph.nodes):
        return graph
    work = _Inliner(graph, bodies, context)
    for node in graph.nodes:
        work.add(node)
    return work.result()


def _is_external(node: Node) -> bool:
    return isinstance(node.op, Call) and node.op.compiler != ""


class _Inliner:
    """Graph with resolved calls while it is built.

    Attributes:
        bodies: bodies of the calls to resolve, already without calls.
        current: content of the states of each used body, at this point.
        renamed: new names in this graph of the subgraphs of each used body.
    """

    def __init__(self, graph: Graph, bodies: Mapping[str, Graph], context: PassContext):
        self.graph = graph
        self.bodies = bodies
        self.context = context
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = dict(graph.constants)
        self.replaced: dict[Value, Value] = {}
        self.state: dict[str, tuple[Value, ...]] = {}
        self.current: dict[str, tuple[Value, ...]] = {}
        self.subgraphs: dict[str, Graph] = dict(graph.subgraphs)
        self.renamed: dict[str, Mapping[str, str]] = {}

    def add(self, node: Node) -> None:
        """Append a node, or the nodes of the body that it calls."""
        node = rewire(node, self.replaced)
        if not isinstance(node.op, Call) or _is_external(node):
            self.nodes.append(node)
            return
        name = node.op.body
        body = self.bodies[name]
        if name not in self.renamed:
            self._prepare(name, body)
        arguments = [value for value in node.inputs if value is not None]
        copy = splice(body, arguments, self.current[name], self.renamed[name])
        self.nodes += copy.nodes
        self.current[name] = copy.next
        results = list(copy.outputs)
        for step in node.epilogue:
            self.nodes.append(make_node(step.op, (results[0], *step.operands), [node.outputs[0].name]))
            results[0] = self.nodes[-1].output
        self.replaced |= dict(zip(node.outputs, results, strict=True))
        self.context.fired(node, f"the {len(body.nodes)} nodes of @{name} replace it")

    def _prepare(self, name: str, body: Graph) -> None:
        """Add constants, states and subgraphs of a body, once for all of its calls."""
        self.constants |= body.constants
        self.state[name] = self.current[name] = tuple(replace(s.value) for s in body.state)
        self.renamed[name] = {inner: fresh_name(inner, self.subgraphs) for inner in body.subgraphs}
        self.subgraphs |= {self.renamed[name][inner]: graph for inner, graph in body.subgraphs.items()}

    def result(self) -> Graph:
        """Return the graph without the calls, and without bodies that have no users any more."""
        hoisted = tuple(
            State(value, old.initial, last)
            for name, values in self.state.items()
            for value, old, last in zip(values, self.bodies[name].state, self.current[name], strict=True)
        )
        called = {name for node in self.nodes for name in node.op.bodies}
        kept = {n: body for n, body in self.subgraphs.items() if n in called or n not in self.renamed}
        graph = replace(self.graph, state=(*self.graph.state, *hoisted), subgraphs=kept)
        return graph.with_nodes(self.nodes, constants=self.constants, replaced=self.replaced)
