from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent

from msgspec.structs import replace

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.ir.graph import Graph, verify
from microfold.ir.node import Node, Value
from microfold.ir.rewrite import (
    GraphBuilder,
    Operand,
    Pending,
    RewriteSite,
    forward_rewrite,
    remove_dead_nodes,
)
from microfold.ir.text import parse, to_text
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.transpose import Transpose


def graph_of(text: str) -> Graph:
    return parse(dedent(text))


DIAMOND = """
    graph @g(%x: float32[2]) -> (%d) {
      %a: float32[2] = clip(%x) {minimum=0.0, maximum=1.0}
      %b: float32[2] = clip(%a) {minimum=0.0, maximum=2.0}
      %c: float32[2] = clip(%a) {minimum=0.0, maximum=3.0}
      %d: float32[2] = add(%b, %c)
      %dead: float32[2] = add(%d, %d)
    }
    """


def test_no_answer_gives_the_same_graph() -> None:
    graph = graph_of(DIAMOND)
    assert forward_rewrite(graph, lambda _: None) is graph
    assert forward_rewrite(graph, {}) is graph


def test_function_visits_live_nodes_operands_first() -> None:
    seen: list[str] = []
    forward_rewrite(graph_of(DIAMOND), lambda site: seen.append(site.node.output.name))
    assert seen == ["a", "b", "c", "d"]


def test_rules_by_operator_and_by_base_class() -> None:
    seen: list[str] = []

    def note(site: RewriteSite[None]) -> None:
        seen.append(site.node.op.name)

    graph = graph_of(DIAMOND)
    forward_rewrite(graph, {Clip: note})
    assert seen == ["clip"] * 3
    seen.clear()
    forward_rewrite(graph, {type(graph.nodes[0].op).__mro__[1]: note})
    assert seen == ["clip", "clip", "clip", "add"]


def test_rules_see_rewritten_operands() -> None:
    def bypass(site: RewriteSite[None]) -> Operand | None:
        return site.inputs[0]

    result = forward_rewrite(graph_of(DIAMOND), {Clip: bypass})
    verify(result)
    assert to_text(result).count("clip") == 0
    assert result.nodes[0].inputs == (result.inputs[0], result.inputs[0])


def test_context_object_per_call() -> None:
    def double(site: RewriteSite[float]) -> Sequence[Value]:
        return site.emit(Clip(0.0, site.context), site.inputs[0])

    def bound(node: Node) -> float:
        return 10 * node.op.maximum if isinstance(node.op, Clip) else 0.0

    result = forward_rewrite(graph_of(DIAMOND), {Clip: double}, context=bound)
    assert [n.op.maximum for n in result.nodes if isinstance(n.op, Clip)] == [10.0, 20.0, 30.0]
    assert [n.output.name for n in result.nodes] == ["a", "b", "c", "d"]


def test_types_change_downstream() -> None:
    def turn(site: RewriteSite[None]) -> Sequence[Value]:
        return site.emit(Reshape((2, 1)), *site.inputs[:1])

    text = """
        graph @g(%x: float32[1,2]) -> (%b) {
          %a: float32[1,2] = reshape(%x) {shape=(1, 2)}
          %b: float32[1,2] = clip(%a) {minimum=0.0, maximum=1.0}
        }
        """
    result = forward_rewrite(graph_of(text), {Reshape: turn})
    verify(result)
    assert result.outputs[0].type.shape == (2, 1)


class Transposed(Pending, frozen=True):
    """A transposition put off: the message that the next test sends down the graph."""

    source: Value

    def realize(self, builder: GraphBuilder) -> Value:
        return builder.emit(Transpose((1, 0)), [self.source], ["late"])[0]


def sink_transposes(graph: Graph, *, realize_shared: bool = False) -> Graph:
    """Move transposes down through clips until something needs the value."""

    def transpose(site: RewriteSite[None]) -> Operand | None:
        operand = site.inputs[0]
        if isinstance(operand, Transposed):
            return operand.source
        assert isinstance(operand, Value)
        return Transposed(operand)

    def clip(site: RewriteSite[None]) -> Operand | None:
        operand = site.inputs[0]
        return (
            Transposed(site.emit(site.node.op, operand.source)[0])
            if isinstance(operand, Transposed)
            else None
        )

    def hook(operand: Operand, site: RewriteSite[None]) -> Operand:
        return site.builder.value(operand)

    rules = {Transpose: transpose, Clip: clip}
    return forward_rewrite(graph, rules, on_multi_ref=hook if realize_shared else None)


SHARED = """
    graph @g(%x: float32[2,3]) -> (%e, %f) {
      %t: float32[3,2] = transpose(%x) {permutation=(1, 0)}
      %a: float32[3,2] = clip(%t) {minimum=0.0, maximum=6.0}
      %d: float32[3,2] = add(%a, %a)
      %e: float32[3,2] = add(%a, %d)
      %f: float32[2,3] = transpose(%a) {permutation=(1, 0)}
    }
    """


def test_pending_values_travel_and_are_realised_once() -> None:
    result = sink_transposes(graph_of(SHARED))
    verify(result)
    assert [node.op.name for node in result.nodes] == ["clip", "transpose", "add", "add"]
    assert result.outputs[1] is result.nodes[0].output


def test_hook_for_values_with_several_readers() -> None:
    result = sink_transposes(graph_of(SHARED), realize_shared=True)
    verify(result)
    # %a has four readers: its transposition is realised before any of them is looked at.
    assert [node.op.name for node in result.nodes] == ["clip", "transpose", "add", "add", "transpose"]


def test_pending_output_is_realised() -> None:
    text = """
        graph @g(%x: float32[2,3]) -> (%t) {
          state %s: float32[3,2] initial [0.0, 0.0, 0.0, 0.0, 0.0, 0.0] next %t
          %t: float32[3,2] = transpose(%x) {permutation=(1, 0)}
        }
        """
    result = sink_transposes(graph_of(text))
    verify(result)
    assert result.state[0].next is result.outputs[0] is result.nodes[0].output


def test_only_reader_is_seen_through_removed_nodes() -> None:
    # %r goes; its reader then is one of two readers of %a.
    text = """
        graph @g(%x: float32[2]) -> (%b, %c) {
          %a: float32[2] = clip(%x) {minimum=0.0, maximum=1.0}
          %r: float32[2] = reshape(%a) {shape=(2,)}
          %b: float32[2] = clip(%r) {minimum=0.0, maximum=2.0}
          %c: float32[2] = clip(%a) {minimum=0.0, maximum=3.0}
        }
        """
    found: dict[str, bool] = {}

    def clip(site: RewriteSite[None]) -> None:
        found[site.node.output.name] = site.is_only_reader(0)

    forward_rewrite(graph_of(text), {Clip: clip, Reshape: lambda site: site.inputs[0]})
    assert found == {"a": True, "b": False, "c": False}


def test_epilogue_operands_are_rewired() -> None:
    text = """
        graph @g(%x: float32[2]) -> (%y) {
          %r: float32[2] = reshape(%x) {shape=(2,)}
          %y: float32[2] = add(%x, %x) | add(%r)
        }
        """
    result = forward_rewrite(graph_of(text), {Reshape: lambda site: site.inputs[0]})
    verify(result)
    assert result.nodes[0].epilogue[0].operands == result.inputs
    assert isinstance(result.nodes[0].op, Add)


def test_dead_nodes_go_with_what_only_they_read() -> None:
    graph = graph_of(DIAMOND)
    assert [n.output.name for n in remove_dead_nodes(graph).nodes] == ["a", "b", "c", "d"]
    alive = replace(graph, outputs=(*graph.outputs, graph.nodes[-1].output))
    assert remove_dead_nodes(alive) is alive
