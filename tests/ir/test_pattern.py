from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.errors import InputError
from microfold.ir.graph import Graph, verify
from microfold.ir.node import Node, Value
from microfold.ir.pattern import (
    DataflowPattern,
    Match,
    MatchFailure,
    constant,
    is_constant,
    is_input,
    is_op,
    match,
    one_of,
    optional,
    sequence,
    wildcard,
)
from microfold.ir.rewrite import RewriteSite
from microfold.ir.rewrite_patterns import rewrite_patterns
from microfold.ir.text import parse, to_text
from microfold.ir.types import DType, Quant, TensorType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.fully_connected.fully_connected import FullyConnected

GRAPH = parse(
    dedent(
        """
        graph @g(%x: float32[1,2], %z: float32[1,2]) -> (%y, %silu, %nobias) {
          %w = constant float32[2,2] [1.0, 2.0, 3.0, 4.0]
          %b = constant float32[2] [1.0, 2.0]
          %dense: float32[1,2] = fully_connected(%x, %w, %b)
          %c = constant float32[1] [3.0]
          %sum: float32[1,2] = add(%c, %dense)
          %y: float32[1,2] = clip(%sum) {minimum=0.0, maximum=6.0}
          %sigmoid: float32[1,2] = logistic(%x)
          %silu: float32[1,2] = mul(%sigmoid, %x)
          %nobias: float32[1,2] = fully_connected(%z, %w)
        }
        """
    )
)
VALUES = {value.name: value for node in GRAPH.nodes for value in node.outputs}


def fits(pattern: DataflowPattern, name: str = "y") -> Match:
    found = match(pattern, VALUES[name], GRAPH)
    assert isinstance(found, Match), str(found)
    return found


def refused(pattern: DataflowPattern, name: str = "y") -> MatchFailure:
    found = match(pattern, VALUES[name], GRAPH)
    assert isinstance(found, MatchFailure)
    return found


DENSE = is_op(FullyConnected)(wildcard("x"), constant("w"), optional(constant("b")))


def test_a_region_with_its_parts() -> None:
    offset = is_op("add").in_any_order(DENSE.named("dense"), constant("c"))
    found = fits(is_op(Clip, minimum=0.0)(offset))
    assert [node.output.name for node in found.nodes] == ["dense", "sum", "y"]
    assert {name: value.name for name, value in found.values.items()} == {
        "x": "x",
        "w": "w",
        "b": "b",
        "dense": "dense",
        "c": "c",
    }
    assert found.node("dense") is GRAPH.nodes[0]
    array = found.array("c")
    assert array is not None
    assert array.tolist() == [3.0]
    with pytest.raises(KeyError, match="no node computes 'x'"):
        found.node("x")


def test_optional_operands() -> None:
    found = fits(DENSE, "nobias")
    assert found.get("b") is None
    assert found.array("b") is None
    assert str(refused(is_op(FullyConnected)(wildcard(), wildcard(), wildcard()), "nobias")) == (
        "operand bias of fully_connected %nobias must be present; it is absent"
    )
    assert str(refused(is_op(FullyConnected)(wildcard(), wildcard()), "dense")) == (
        "fully_connected %dense must have at most 2 operands; it has 3"
    )


def test_refusals_name_the_place_the_rule_and_what_is_there() -> None:
    sum_of = is_op(Add)
    assert str(refused(is_op(Mul))) == "%y must be computed by mul; clip computes %y: float32[1,2]"
    assert refused(is_op(Mul)).matched == 0
    nested = refused(is_op(Clip)(sum_of(DENSE, constant())))
    assert str(nested) == (
        "operand first of add %sum must be computed by fully_connected; %c: float32[1] is constant"
    )
    assert nested.matched == 2
    assert str(refused(is_op(Clip)(constant()))) == (
        "operand x of clip %y must be constant; add computes %sum: float32[1,2]"
    )
    assert str(refused(is_op(Clip, maximum=1.0))) == "clip %y must have maximum 1.0; it is 6.0"
    assert (
        str(refused(is_op(Clip, maximum=lambda m: m < 0))) == "clip %y must have a fitting maximum; it is 6.0"
    )


def test_the_refusal_that_got_furthest_is_told() -> None:
    first = is_op(Clip)(is_op(Mul))
    second = is_op(Clip)(is_op(Add).in_any_order(is_op(FullyConnected)(constant()), constant()))
    for pattern in (first | second, second | first):
        assert refused(pattern).where == "operand x of fully_connected %dense"


def test_one_name_is_one_value() -> None:
    x = wildcard("x")
    assert fits(is_op(Mul).in_any_order(x, is_op("logistic")(x)), "silu")["x"] is GRAPH.inputs[0]
    reason = str(refused(is_op(Add)(x, x), "sum"))
    assert reason == (
        "operand second of add %sum must be the value bound to 'x' elsewhere; "
        "%dense: float32[1,2] is not %c: float32[1]"
    )


def test_alternatives_are_tried_again_when_a_later_part_fails() -> None:
    # The first alternative takes %sigmoid as x, and so the second operand does not fit.
    either = one_of(wildcard("x"), is_op("logistic")(wildcard("x")))
    assert fits(is_op(Mul)(either, wildcard("x")), "silu")["x"] is GRAPH.inputs[0]


def test_types() -> None:
    type = VALUES["y"].type
    assert fits(is_op(Clip).has_type(type).has_dtype(DType.FLOAT32, DType.INT8).has_shape(None, 2))
    other = TensorType(DType.FLOAT32, (1, 2), Quant.per_tensor(0.5))
    assert "must be float32[1,2] with Quant(scales=(0.5,)" in str(refused(is_op(Clip).has_type(other)))
    assert str(refused(is_op(Clip)(wildcard().has_dtype(DType.INT8, DType.INT16)))) == (
        "operand x of clip %y must be int8 or int16; it is %sum: float32[1,2]"
    )
    assert "must have the shape [1,?,2]" in str(refused(is_op(Clip).has_shape(1, None, 2)))


def test_readers_and_predicates() -> None:
    assert fits(is_op(Clip)(is_op(Add).used_by_one()))
    assert str(refused(is_op("logistic")(wildcard().used_by_one()), "sigmoid")) == (
        "operand x of logistic %sigmoid must have one reader; %x: float32[1,2] has 3"
    )
    one = constant("c").where(lambda at: at.array is not None and at.array.size == 1, "have one element")
    assert fits(is_op(Add).in_any_order(one, wildcard()), "sum")["c"].name == "c"
    # %x is not even constant: the first constant is the better news.
    assert str(refused(is_op(FullyConnected).reading(one), "dense")) == (
        "operand weights of fully_connected %dense must have one element; it is %w: float32[2,2]"
    )


def test_sequence() -> None:
    chain = sequence(DENSE, optional(is_op(Sub)), is_op(Add).named("sum"), is_op(Clip))
    assert [node.op.name for node in fits(chain).nodes] == ["fully_connected", "add", "clip"]
    assert fits(chain)["sum"].name == "sum"
    assert refused(sequence(DENSE, is_op(Sub), is_op(Clip))).where == "operand x of clip %y"
    with pytest.raises(InputError, match="only patterns of operators"):
        sequence(DENSE, wildcard())


def test_epilogues_are_refused() -> None:
    graph = parse(
        """graph @g(%x: float32[2]) -> (%y) {
          %y: float32[2] = add(%x, %x) | clip() {minimum=0.0, maximum=1.0}
        }"""
    )
    assert str(match(is_op(Add), graph.outputs[0], graph)) == "add %y must have no epilogue; it has clip"


def test_mistakes_in_patterns() -> None:
    with pytest.raises(InputError, match=r"unknown operator 'conv'; known are .*conv2d"):
        is_op("conv")
    with pytest.raises(InputError, match="Clip has no attribute low; it has minimum, maximum"):
        is_op(Clip, low=1)


def merge_clips(site: RewriteSite[None], found: Match) -> tuple[Value, ...]:
    inner, outer = found.node("inner").op, site.node.op
    assert isinstance(inner, Clip)
    assert isinstance(outer, Clip)
    return site.emit(Clip(max(inner.minimum, outer.minimum), min(inner.maximum, outer.maximum)), found["x"])


def test_rewriting() -> None:
    rules = [(is_op(Clip)(is_op(Clip)(wildcard("x")).used_by_one().named("inner")), merge_clips)]
    graph = parse(
        dedent(
            """
            graph @g(%x: float32[2]) -> (%c, %d, %e) {
              %a: float32[2] = clip(%x) {minimum=0.0, maximum=9.0}
              %b: float32[2] = clip(%a) {minimum=1.0, maximum=8.0}
              %c: float32[2] = clip(%b) {minimum=2.0, maximum=7.0}
              %d: float32[2] = clip(%c) {minimum=3.0, maximum=6.0}
              %e: float32[2] = add(%d, %x)
            }
            """
        )
    )
    declined: list[str] = []

    def decline(node: Node, reason: str) -> None:
        declined.append(f"{node.output.name}: {reason}")

    result = rewrite_patterns(graph, rules, declined=decline)
    verify(result)
    assert to_text(result) == dedent(
        """\
        graph @g(%x: float32[2]) -> (%c, %d, %e) {
          %c: float32[2] = clip(%x) {minimum=2.0, maximum=7.0}
          %d: float32[2] = clip(%c) {minimum=3.0, maximum=6.0}
          %e: float32[2] = add(%d, %x)
        }
        """
    )
    # The root's operator fitted, and something behind it did not. %e is another operator: nothing to say.
    assert declined == [
        "a: operand x of clip %a must be computed by clip; %x: float32[2] is an input or a state",
        "d: operand x of clip %d must have one reader; %c: float32[2] has 2",
    ]
    assert rewrite_patterns(result, rules) is result


def test_the_first_rule_that_answers_counts() -> None:
    def nothing(site: RewriteSite[None], found: Match) -> None: ...

    def bypass(site: RewriteSite[None], found: Match) -> Value:  # noqa: ARG001
        return found["x"]

    pattern = is_op(Clip)(wildcard("x"))
    result = rewrite_patterns(GRAPH, [(pattern, nothing), (pattern, bypass), (pattern, merge_clips)])
    assert [node.op.name for node in result.nodes].count("clip") == 0
    verify(result)


def test_a_node_reached_twice_is_in_the_region_once() -> None:
    graph: Graph = parse(
        """graph @g(%x: float32[2]) -> (%y) {
          %a: float32[2] = logistic(%x)
          %y: float32[2] = mul(%a, %a)
        }"""
    )
    found = match(is_op(Mul)(is_op("logistic"), is_op("logistic")), graph.outputs[0], graph)
    assert isinstance(found, Match)
    assert found.nodes == graph.nodes


def test_constants_of_a_value() -> None:
    fits(is_op(Clip)(is_op(Add)(is_constant(3.0), is_op(FullyConnected))))
    found = fits(is_op(FullyConnected)(wildcard(), is_constant(np.array([[1, 2], [3, 4]]), "w")), "nobias")
    assert found.array("w") is not None
    fits(is_op(FullyConnected)(is_input("z"), constant()), "nobias")
    wrong = refused(is_op(Clip)(is_op(Add)(is_constant(2.0), wildcard())))
    assert str(wrong) == "operand first of add %sum must have the elements of 2.0; it is %c: float32[1]"
    refused(is_op(FullyConnected)(wildcard(), is_constant(np.zeros(3))), "nobias")
    wrong = refused(is_op(Clip)(is_input()))
    assert "must be an input of the graph; it is %sum" in str(wrong)


DIAMOND = parse(
    """
    graph @g(%x: float32[4], %z: float32[4]) -> (%y, %u) {
      %k = constant float32[4] [1.0, 2.0, 3.0, 4.0]
      %p: float32[4] = mul(%x, %k)
      %a: float32[4] = tanh(%p)
      %b: float32[4] = add(%a, %k)
      %c: float32[4] = sub(%b, %a)
      %y: float32[4] = mul(%c, %p)
      %q: float32[4] = mul(%z, %k)
      %t: float32[4] = tanh(%q)
      %v: float32[4] = tanh(%z)
      %w: float32[4] = add(%t, %v)
      %u: float32[4] = mul(%w, %q)
    }
    """
)
ENDS = dict(zip("yu", DIAMOND.outputs, strict=True))
PATH = is_op("tanh", Add, Sub)


def test_all_ways_lead_to_one_parent() -> None:
    pattern = is_op(Mul).dominates(is_op(Mul)(wildcard("x"), constant()).named("parent"), PATH)
    found = match(pattern, ENDS["y"], DIAMOND)
    assert isinstance(found, Match), str(found)
    assert [node.outputs[0].name for node in found.nodes] == ["p", "a", "b", "c", "y"]
    assert found["x"].name == "x" and found["parent"].name == "p"
    other = match(pattern, ENDS["u"], DIAMOND)
    assert isinstance(other, MatchFailure) and "must come from the parent on all paths; %z" in str(other)
    two = match(is_op(Mul).dominates(is_op("tanh", Mul), is_op(Add)), ENDS["u"], DIAMOND)
    assert isinstance(two, MatchFailure) and "must come from one parent; there are" in str(two)


def test_what_lies_between_has_no_other_readers() -> None:
    text = to_text(DIAMOND).replace("-> (%y, %u)", "-> (%y, %b)")
    graph = parse(text)
    pattern = is_op(Mul).dominates(is_op(Mul), PATH)
    found = match(pattern, graph.outputs[0], graph)
    assert isinstance(found, MatchFailure) and "something else reads %b" in str(found)
    plain = is_op(Add).dominates(is_op("tanh"))
    node = next(node for node in DIAMOND.nodes if node.outputs[0].name == "b")
    found = match(plain, node.outputs[0], DIAMOND)
    assert isinstance(found, MatchFailure) and "something else reads %a" in str(found)


def test_only_used_by() -> None:
    values = {value.name: value for node in DIAMOND.nodes for value in node.outputs}
    assert isinstance(match(is_op("tanh").only_used_by(Add, "sub"), values["a"], DIAMOND), Match)
    found = match(is_op("tanh").only_used_by(Add), values["a"], DIAMOND)
    assert isinstance(found, MatchFailure)
    assert str(found) == "%a must be read by add only; sub %c reads %a: float32[4]"
    found = match(wildcard().only_used_by(Mul), ENDS["y"], DIAMOND)
    assert isinstance(found, MatchFailure) and "a graph output or next state reads" in str(found)
    with pytest.raises(InputError, match="unknown operator"):
        wildcard().only_used_by("nonsense")


def test_consumers_while_rewriting() -> None:
    """What a replacement stands for is read by what read the old value."""
    pattern = is_op("tanh")(is_op(Mul).only_used_by("tanh", Mul).named("p"))
    seen: list[str] = []

    def note(site: RewriteSite[None], found: Match) -> None:
        seen.append(f"{found['p'].name} {site.node.output.name}")

    def copy(site: RewriteSite[None], found: Match) -> tuple[Value, ...]:
        return site.emit(Mul(site.node.op.out), found["k"], found["x"])  # type: ignore[attr-defined]

    turn = is_op(Mul)(is_input("x"), constant("k"))
    rewrite_patterns(DIAMOND, [(turn, copy), (pattern, note)])
    assert seen == ["p a", "q t"]
