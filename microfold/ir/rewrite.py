"""Rewriting in one sweep along the dataflow, in the manner of TVM's ForwardRewrite.

`forward_rewrite` visits every node after the nodes that it reads. A rule sees the node with its operands
already rewritten and answers with what stands for the node's results, or with None to keep the node. What no
one reads any more is dropped at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar, cast, overload

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Step, Value, describe, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, TensorType
from microfold.support.frozen import frozen

C = TypeVar("C")


class Pending(ABC):
    """A result that a rule promises without having produced it: a message to the consumers.

    A consumer's rule that knows the message takes it from `RewriteSite.inputs` and may pass it on (a scale
    not applied yet, a layout not converted yet). For every other reader the value is realised, once.
    TVM calls this a TempExpr. Subclasses compare by identity.
    """

    @abstractmethod
    def realize(self, builder: GraphBuilder) -> Value:
        """Emit the nodes that produce the value; it has the type that consumers would have seen."""


Operand = Value | Pending


class GraphBuilder:
    """The graph that is being built: nodes in topological order, and constants.

    Attributes:
        inputs: of the graph.
        consumers: the nodes of the old graph that read each of its values.
        stands_for: values of the old graph whose place a value of the new one takes.
    """

    def __init__(self, graph: Graph):
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = dict(graph.constants)
        self.inputs = frozenset(graph.inputs)
        self.consumers = graph.consumers()
        self.stands_for: dict[Value, list[Value]] = {}
        self._producers: dict[Value, Node] = {}
        self._realized: dict[Pending, Value] = {}

    def add(self, node: Node) -> None:
        """Append a finished node."""
        self.nodes.append(node)
        self._producers.update(dict.fromkeys(node.outputs, node))

    def emit(
        self, op: Op, inputs: Sequence[Operand | None], names: Sequence[str], epilogue: Sequence[Step] = ()
    ) -> tuple[Value, ...]:
        """Append a node, typed by its type rule; gives its outputs."""
        node = make_node(op, [self.value(x) if x is not None else None for x in inputs], names, epilogue)
        self.add(node)
        return node.outputs

    def constant(self, array: Array, type: TensorType, name: str) -> Value:
        """A new constant."""
        value = Value(name, type)
        self.constants[value] = array
        return value

    def producer(self, operand: Operand | None) -> Node | None:
        """The node of the new graph that produces a value; None for inputs, constants and states."""
        return self._producers.get(operand) if isinstance(operand, Value) else None

    def value(self, operand: Operand) -> Value:
        """The value itself; a pending one is produced here if it has not been before."""
        if isinstance(operand, Value):
            return operand
        if operand not in self._realized:
            self._realized[operand] = operand.realize(self)
        return self._realized[operand]


@frozen(eq=False)
class RewriteSite(Generic[C]):
    """The place that a rule looks at.

    Attributes:
        node: the node as it was.
        context: what the rewrite's `context` gave for this node.
        builder: the new graph so far.
        replaced: what stands for values of the old graph in the new one, where it is not themselves.
        uses: how often each value, old or new, is read; never less than will be true in the end.
    """

    node: Node
    context: C
    builder: GraphBuilder
    replaced: Mapping[Value, Operand]
    uses: Counter[Value]

    @property
    def inputs(self) -> tuple[Operand | None, ...]:
        """What stands for ``node.inputs`` in the new graph."""
        return tuple(self.operand(index) for index in range(len(self.node.inputs)))

    def operand(self, index: int) -> Operand | None:
        """What stands for operand `index` in the new graph; None if it is absent."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        return self.replaced.get(value, value) if value is not None else None

    @property
    def epilogue(self) -> tuple[Step, ...]:
        """The node's epilogue on operands of the new graph."""
        return tuple(
            Step(step.op, tuple(self.builder.value(self.replaced.get(v, v)) for v in step.operands))
            for step in self.node.epilogue
        )

    def value(self, index: int) -> Value | None:
        """Operand `index` in the new graph, realised; None if it is absent."""
        operand = self.operand(index)
        return self.builder.value(operand) if operand is not None else None

    def array(self, value: Value | None) -> Array | None:
        """The constant that stands for a value of the old graph; None if there is none."""
        operand = self.replaced.get(value, value) if value is not None else None
        return self.builder.constants.get(operand) if isinstance(operand, Value) else None

    def producer(self, index: int) -> Node | None:
        """The node of the new graph that produces operand `index`."""
        return self.builder.producer(self.operand(index))

    def is_only_reader(self, index: int) -> bool:
        """Nothing else, graph outputs and next states included, reads operand `index`."""
        operand = self.operand(index)
        return isinstance(operand, Value) and self.uses[operand] == 1

    def emit(self, op: Op, *inputs: Operand | None, epilogue: Sequence[Step] = ()) -> tuple[Value, ...]:
        """Append a node whose outputs are named as the old node's."""
        return self.builder.emit(op, inputs, [value.name for value in self.node.outputs], epilogue)


# What a rule may answer: what takes the place of a node's results; None leaves the node as it is.
Replacement = Operand | Sequence[Operand] | None
Rule = Callable[[RewriteSite[C]], Replacement]
Rules = Mapping[type[Op], Rule[C]] | Rule[C]
MultiRefHook = Callable[[Operand, RewriteSite[C]], Operand]


@overload
def forward_rewrite(
    graph: Graph, rules: Rules[None], *, on_multi_ref: MultiRefHook[None] | None = None
) -> Graph: ...
@overload
def forward_rewrite(
    graph: Graph,
    rules: Rules[C],
    *,
    context: Callable[[Node], C],
    on_multi_ref: MultiRefHook[C] | None = None,
) -> Graph: ...
def forward_rewrite(
    graph: Graph,
    rules: Rules[C],
    *,
    context: Callable[[Node], C] | None = None,
    on_multi_ref: MultiRefHook[C] | None = None,
) -> Graph:
    """Rewrite a graph, node by node, each after the nodes that it reads; dead nodes are dropped first.

    Args:
        rules: one function for all nodes, or one per operator type (a base class stands for its subclasses).
        context: gives the object that a rule finds in ``site.context``.
        on_multi_ref: called for each result that is read more than once; what it returns stands for the
            result instead (for example a pending value, realised).

    Returns:
        The new graph; `graph` itself, dead nodes and all, if no rule answered.
    """
    if not callable(rules) and on_multi_ref is None:
        operators = {type(node.op) for node in graph.nodes}
        if all(_lookup(rules, operator) is None for operator in operators):
            return graph  # no rule can answer
    source = graph
    graph = remove_dead_nodes(graph)
    uses = graph.use_counts()
    builder = GraphBuilder(graph)
    replaced: dict[Value, Operand] = {}
    for node in graph.nodes:
        own = cast(C, context(node) if context is not None else None)
        site = RewriteSite(node, own, builder, replaced, uses)
        rule = rules if callable(rules) else _lookup(rules, type(node.op))
        answer = rule(site) if rule is not None else None
        results = _keep(site) if answer is None else _checked(answer, node)
        for old, new in zip(node.outputs, results, strict=True):
            if on_multi_ref is not None and uses[old] > 1:
                new = on_multi_ref(new, site)
            if new is not old:
                replaced[old] = new
                if isinstance(new, Value):
                    builder.stands_for.setdefault(new, []).append(old)
                    # Its readers are now also those of the old value; this node, if it was one, is none.
                    uses[new] += uses[old] - site.inputs.count(new)
    # In their order: realising emits nodes, and the order of a set differs from run to run.
    ends = (*graph.outputs, *(state.next for state in graph.state))
    final = {old: builder.value(replaced[old]) for old in ends if old in replaced}
    if not replaced and builder.nodes == list(graph.nodes):
        return source
    return remove_dead_nodes(graph.with_nodes(builder.nodes, constants=builder.constants, replaced=final))


def _checked(answer: object, node: Node) -> tuple[Operand, ...]:
    """What stands for the node's results."""
    given = answer if isinstance(answer, tuple | list) else (answer,)
    results = [result for result in cast("Sequence[object]", given) if isinstance(result, Value | Pending)]
    if len(results) == len(given) == len(node.outputs):
        return tuple(results)
    there = ", ".join(type(result).__name__ for result in cast("Sequence[object]", given)) or "nothing"
    raise InputError(
        f"a rule must give None, or a value for each of the {len(node.outputs)} results of {describe(node)}; "
        f"it gave {there}"
    )


def _lookup(rules: Mapping[type[Op], Rule[C]], op_type: type[Op]) -> Rule[C] | None:
    return next((rules[base] for base in op_type.__mro__ if base in rules), None)


def _keep(site: RewriteSite[C]) -> tuple[Value, ...]:
    """The node on its rewritten operands; its results keep their identity if they keep their types."""
    node, builder = site.node, site.builder
    if not any(value in site.replaced for value in node.operands):
        builder.add(node)
        return node.outputs
    inputs = tuple(builder.value(x) if x is not None else None for x in site.inputs)
    epilogue = site.epilogue
    rewired = Node(node.op, inputs, node.outputs, epilogue)
    if rewired.infer() != tuple(value.type for value in node.outputs):
        rewired = make_node(node.op, inputs, [value.name for value in node.outputs], epilogue)
    builder.add(rewired)
    return rewired.outputs


def remove_dead_nodes(graph: Graph) -> Graph:
    """The graph without nodes whose results nobody reads; nodes with effects stay."""
    live: set[Value] = {*graph.outputs, *(state.next for state in graph.state)}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.op.has_effect or not live.isdisjoint(node.outputs):
            kept.append(node)
            live.update(node.operands)
    return graph if len(kept) == len(graph.nodes) else graph.with_nodes(reversed(kept))
