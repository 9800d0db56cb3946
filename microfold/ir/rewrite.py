"""Graph rewriting in one sweep along the dataflow, like TVM's ForwardRewrite.

`forward_rewrite` visits every node after the nodes that it reads. A rule receives the node with rewritten
operands, and returns replacements of the node's results, or None to keep the node. Nodes without readers are
removed at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar, cast, overload

from msgspec import Struct

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Node, Value, describe, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, TensorType

C = TypeVar("C")


class Pending(Struct, frozen=True, eq=False):
    """Result of a rule that is not produced yet, and carries a message to its readers.

    A reader's rule that knows the message can take it from `RewriteSite.inputs` and pass it on, for example a
    scale not applied yet or a layout not converted yet. For every other reader, the value is realised, once.
    TVM calls this a TempExpr. Subclasses compare by identity.
    """

    def realize(self, builder: GraphBuilder) -> Value:
        """Emit the nodes that produce the value, with the type that readers would have seen."""
        raise NotImplementedError


Operand = Value | Pending


class GraphBuilder:
    """Builder of the new graph: nodes in topological order, and constants.

    Attributes:
        inputs: inputs of the graph.
        consumers: nodes of the old graph that read each of its values.
        stands_for: values of the old graph that a value of the new graph replaces.
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
        self,
        op: Op,
        inputs: Sequence[Operand | None],
        names: Sequence[str],
        epilogue: Sequence[EpilogueStep] = (),
    ) -> tuple[Value, ...]:
        """Append a node whose outputs are typed by its type rule, and return the outputs."""
        node = make_node(op, [self.value(x) if x is not None else None for x in inputs], names, epilogue)
        self.add(node)
        return node.outputs

    def constant(self, array: Array, type: TensorType, name: str) -> Value:
        """Add a constant and return its value."""
        value = Value(name, type)
        self.constants[value] = array
        return value

    def producer(self, operand: Operand | None) -> Node | None:
        """Return the node of the new graph that produces a value; None for inputs, constants and states."""
        return self._producers.get(operand) if isinstance(operand, Value) else None

    def value(self, operand: Operand) -> Value:
        """Return the value itself; a pending one is realised on first use."""
        if isinstance(operand, Value):
            return operand
        if operand not in self._realized:
            self._realized[operand] = operand.realize(self)
        return self._realized[operand]


class RewriteSite(Struct, Generic[C], frozen=True, eq=False):
    """Node to which a rule is applied, and the state of the rewrite.

    Attributes:
        node: the old node.
        context: result of the rewrite's `context` function for this node.
        builder: the new graph so far.
        replaced: replacements of values of the old graph, if they differ from the value itself.
        uses: number of readers of each value, old or new; never less than the final number.
    """

    node: Node
    context: C
    builder: GraphBuilder
    replaced: Mapping[Value, Operand]
    uses: Counter[Value]

    @property
    def inputs(self) -> tuple[Operand | None, ...]:
        """Operands in the new graph, for each of ``node.inputs``."""
        return tuple(self.operand(index) for index in range(len(self.node.inputs)))

    def operand(self, index: int) -> Operand | None:
        """Return operand `index` in the new graph; None if it is absent."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        return self.replaced.get(value, value) if value is not None else None

    @property
    def epilogue(self) -> tuple[EpilogueStep, ...]:
        """Epilogue of the node with operands of the new graph."""
        return tuple(
            EpilogueStep(step.op, tuple(self.builder.value(self.replaced.get(v, v)) for v in step.operands))
            for step in self.node.epilogue
        )

    def value(self, index: int) -> Value | None:
        """Return operand `index` in the new graph, realised; None if it is absent."""
        operand = self.operand(index)
        return self.builder.value(operand) if operand is not None else None

    def array(self, value: Value | None) -> Array | None:
        """Return the constant that replaces a value of the old graph; None if it is not a constant."""
        operand = self.replaced.get(value, value) if value is not None else None
        return self.builder.constants.get(operand) if isinstance(operand, Value) else None

    def producer(self, index: int) -> Node | None:
        """Return the node of the new graph that produces operand `index`."""
        return self.builder.producer(self.operand(index))

    def is_only_reader(self, index: int) -> bool:
        """Return whether operand `index` has no other reader, including graph outputs and next states."""
        operand = self.operand(index)
        return isinstance(operand, Value) and self.uses[operand] == 1

    def emit(
        self, op: Op, *inputs: Operand | None, epilogue: Sequence[EpilogueStep] = ()
    ) -> tuple[Value, ...]:
        """Append a node with the names of the old node's outputs."""
        return self.builder.emit(op, inputs, [value.name for value in self.node.outputs], epilogue)


# Result of a rule: replacements of the node's results, or None to keep the node.
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
    """Rewrite a graph node by node, each after the nodes that it reads; dead nodes are removed first.

    Args:
        rules: one function for all nodes, or one per operator type (a base class stands for its subclasses).
        context: returns the object that a rule finds in ``site.context``.
        on_multi_ref: called for each result with more than one reader; its return value replaces the result
            (for example a pending value, realised).

    Returns:
        The new graph; `graph` itself, including dead nodes, if no rule replaced anything.
    """
    if not callable(rules) and on_multi_ref is None:
        operators = {type(node.op) for node in graph.nodes}
        if all(_lookup(rules, operator) is None for operator in operators):
            return graph  # no rule applies
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
                    # `new` now also has the readers of the old value, and loses this node if it was a reader.
                    uses[new] += uses[old] - site.inputs.count(new)
    # In a fixed order: realising emits nodes, and the order of a set differs from run to run.
    ends = (*graph.outputs, *(state.next for state in graph.state))
    final = {old: builder.value(replaced[old]) for old in ends if old in replaced}
    if not replaced and builder.nodes == list(graph.nodes):
        return source
    return remove_dead_nodes(graph.with_nodes(builder.nodes, constants=builder.constants, replaced=final))


def _checked(answer: object, node: Node) -> tuple[Operand, ...]:
    """Return the replacements of the node's results.

    Raises:
        InputError: the rule did not return one value for each result.
    """
    given = answer if isinstance(answer, tuple | list) else (answer,)
    results = [result for result in cast("Sequence[object]", given) if isinstance(result, Value | Pending)]
    if len(results) == len(given) == len(node.outputs):
        return tuple(results)
    there = ", ".join(type(result).__name__ for result in cast("Sequence[object]", given)) or "nothing"
    raise InputError(
        f"a rule must return None, or a value for each of the {len(node.outputs)} results of "
        f"{describe(node)}; it returned {there}"
    )


def _lookup(rules: Mapping[type[Op], Rule[C]], op_type: type[Op]) -> Rule[C] | None:
    return next((rules[base] for base in op_type.__mro__ if base in rules), None)


def _keep(site: RewriteSite[C]) -> tuple[Value, ...]:
    """Keep the node with rewritten operands; its results keep their identity if their types stay the same."""
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
    """Return the graph without nodes whose results are unused; nodes with effects stay."""
    live: set[Value] = {*graph.outputs, *(state.next for state in graph.state)}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.op.has_effect or not live.isdisjoint(node.outputs):
            kept.append(node)
            live.update(node.operands)
    return graph if len(kept) == len(graph.nodes) else graph.with_nodes(reversed(kept))
