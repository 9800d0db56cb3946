from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.errors import TextFormError, UnsupportedModelError
from microfold.frontend import tflite
from microfold.ir.graph import Graph, State, verify
from microfold.ir.node import EpilogueStep, Value, make_node
from microfold.ir.op import REGISTRY, Op
from microfold.ir.text import digests, parse, to_text
from microfold.ir.types import DType, Quant, TensorType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from tests.evaluation import assert_same_meaning
from tests.random_graphs import graphs

EVERYTHING = """\
graph @"two words"(%x: int8[1,2,2,1] q(0.1, 3), %"a b": float32[]) -> (%y, %a#1, %"q\\"#1") {
  state %s: int16[2] q(0.001, 0) initial [-7, 9] next %s
  %w = constant int8[2,1,1,1] q(axis=0, scales=[0.5, 0.25], zero_points=0) [1, -2]
  %a: int8[1,2,2,2] q(0.2, -5) = conv2d(%x, %w, none) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}
  %b = constant int8[1,2,2,2] q(0.3, 0) [1, 2, 3, 4, 5, 6, 7, 8]
  %a#1: int8[1,2,2,2] q(0.4, 0) = add(%a, %b) | clip() {minimum=-inf, maximum=6.0} | clip() {minimum=0.0, maximum=inf}
  %model/y;z:0: int8[8] q(0.4, 0) = reshape(%a#1) {shape=(8,)}
  %y: int8[8] q(0.00390625, -128) = softmax(%model/y;z:0) {beta=1.0}
  %"q\\"#1" = constant float32[3] [inf, -0.0, 1.0e-10]
  subgraph @body = graph @body(%x: bool[1]) -> (%x, %c) {
    %c = constant bool[2] [true, false]
  }
}
"""  # noqa: E501


def test_everything_round_trips() -> None:
    graph = parse(EVERYTHING)
    verify(graph)
    assert to_text(graph) == EVERYTHING
    assert [value.name for value in graph.outputs] == ["y", "a", 'q"#1']
    assert graph.name == "two words"


@pytest.mark.parametrize("scale", [1e-45, 3.4028235e38, 0.1, 1 / 3, 16777216.0, 2.0**-126, 0.0])
def test_scales_come_back_exactly(scale: float) -> None:
    for exact in (float(np.float32(scale)), scale):
        value = Value("x", TensorType(DType.INT8, (1,), Quant((exact,), (0,))))
        back = parse(to_text(Graph("g", (value,), (value,), ())))
        assert back.inputs[0].type == value.type


@settings(max_examples=500, deadline=None)
@given(scale=st.floats(0, width=32, allow_nan=False, allow_infinity=False))
def test_any_scale(scale: float) -> None:
    quant = Quant((scale, 1.0), (1, 2), 0)
    value = Value("x", TensorType(DType.INT8, (2,), quant))
    text = to_text(Graph("g", (value,), (value,), ()))
    assert parse(text).inputs[0].type == value.type
    assert "d," not in text


@settings(max_examples=300, deadline=None)
@given(names=st.lists(st.text(), min_size=1, max_size=6))
def test_any_names(names: list[str]) -> None:
    inputs = tuple(Value(name, TensorType(DType.BOOL, ())) for name in [*names, *names])
    graph = Graph(names[0], inputs, inputs[::-1], ())
    text = to_text(graph)
    back = parse(text)
    assert to_text(back) == text
    assert [v.name for v in back.inputs] == [v.name for v in inputs]
    assert [back.inputs.index(v) for v in back.outputs] == list(reversed(range(len(inputs))))
    assert back.name == graph.name


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("size", [0, 1, 16, 17])
def test_data_comes_back_byte_for_byte(dtype: DType, size: int) -> None:
    rng = np.random.default_rng(size)
    if dtype is DType.BOOL:
        array = rng.integers(0, 2, size).astype(bool)
    elif dtype.is_float:
        # Every bit pattern: denormals, infinities, NaN with payloads.
        array = np.frombuffer(rng.bytes(size * dtype.itemsize), dtype.numpy).copy()
        array[:2] = [np.nan, -0.0][:size]
        array.view(np.uint8)[: dtype.itemsize] |= 1  # a NaN that prints as any other
    else:
        array = rng.integers(*dtype.range, size, dtype.numpy, endpoint=True)
    value = Value("x", TensorType(dtype, (size,)))
    back = parse(to_text(Graph("g", (), (value,), (), {value: array})))
    assert back.constants[back.outputs[0]].tobytes() == array.tobytes()


def test_attribute_out_is_written_where_it_differs() -> None:
    # The addition gives another scale than its own epilogue would declare: nothing like it exists yet, but
    # the form must not lose it.
    element = TensorType(DType.INT8, (1,), Quant.per_tensor(0.5)).element
    x = Value("x", TensorType(DType.INT8, (1,), Quant.per_tensor(0.25)))
    node = make_node(Add(element), [x, x], ["y"], [EpilogueStep(Add(x.type.element), (x,))])
    text = to_text(Graph("g", (x,), node.outputs, (node,)))
    assert "add(%x, %x) {out=int8 q(0.5, 0)} | add(%x)\n" in text
    back = parse(text)
    assert to_text(back) == text
    assert back.nodes[0].op == node.op
    assert back.nodes[0].epilogue[0].op == node.epilogue[0].op


class _Halves(Op, frozen=True):
    """An operator with two results."""

    name: ClassVar[str] = "test_halves"

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        half = x.with_shape((x.shape[0] // 2,))
        return half, half


def test_several_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "test_halves", _Halves)
    text = (
        "graph @g(%x: float32[2]) -> (%b) {\n"
        "  %a: float32[1], %b: float32[1] = test_halves(%x) | clip() {minimum=0.0, maximum=1.0}\n}\n"
    )
    graph = parse(text)
    assert to_text(graph) == text
    assert graph.outputs[0] is graph.nodes[0].outputs[1]
    with pytest.raises(TextFormError, match="test_halves has 2 results; 1 are declared"):
        parse(text.replace("%a: float32[1], ", ""))


def test_elided_data() -> None:
    value = Value("x", TensorType(DType.INT32, (100,)))
    state = Value("s", TensorType(DType.INT32, (50,)))
    graph = Graph(
        "g",
        (),
        (value,),
        (),
        {value: np.arange(100, dtype=np.int32)},
        (State(state, np.ones(50, np.int32), state),),
    )
    text = to_text(graph, elide=True)
    assert text.count("dense<sha256:") == 2
    assert len(text) < 250
    back = parse(text, constants=digests(graph))
    assert to_text(back) == to_text(graph)
    with pytest.raises(TextFormError, match="is elided; pass it"):
        parse(text)
    swapped = dict(zip(digests(graph), reversed(digests(graph).values()), strict=True))
    with pytest.raises(TextFormError, match="expected int32"):
        parse(text, constants=swapped)


def same_structure(first: Graph, second: Graph) -> None:
    """Equal up to the identity of values; written without the text form."""
    numbers: list[dict[Value, int]] = []
    for graph in (first, second):
        defined = [*graph.inputs, *(s.value for s in graph.state)]
        for node in graph.nodes:
            defined += [v for v in node.operands if v not in defined and v in graph.constants]
            defined += node.outputs
        defined += [v for v in graph.constants if v not in defined]
        numbers.append({value: index for index, value in enumerate(defined)})
    one, two = numbers
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert (a.name, a.type) == (b.name, b.type)
        assert (a in first.constants) == (b in second.constants)
        if a in first.constants:
            assert first.constants[a].tobytes() == second.constants[b].tobytes()
    for a, b in zip(first.nodes, second.nodes, strict=True):
        assert (a.op, [s.op for s in a.epilogue]) == (b.op, [s.op for s in b.epilogue])
        for left, right in zip(a.inputs, b.inputs, strict=True):
            assert (one[left] if left else None) == (two[right] if right else None)
        assert [one[v] for v in a.operands] == [two[v] for v in b.operands]
    assert [one[v] for v in first.outputs] == [two[v] for v in second.outputs]
    for a, b in zip(first.state, second.state, strict=True):
        assert (one[a.value], one[a.next]) == (two[b.value], two[b.next])
        assert a.initial.tobytes() == b.initial.tobytes()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)
@given(graph=graphs())
def test_random_graphs_round_trip(graph: Graph) -> None:
    text = to_text(graph)
    back = parse(text)
    verify(back)
    assert to_text(back) == text
    same_structure(graph, back)
    assert_same_meaning(graph, back)
    assert to_text(parse(to_text(graph, elide=True), constants=digests(graph))) == text


@pytest.mark.slow
def test_models_round_trip(made_models: Path) -> None:
    count = 0
    for path in sorted(made_models.rglob("*.tflite")):
        try:
            graph = tflite.load(path)
        except UnsupportedModelError:
            continue
        text = to_text(graph)
        back = parse(text)
        assert to_text(back) == text, path.name
        same_structure(graph, back)
        count += 1
    assert count > 100


def test_comments_and_layout_do_not_matter() -> None:
    graph = parse(
        """// a comment
        graph @g (
          %x : float32 [ 2 , ],   // a trailing comma
        ) -> ( %y ) { %y : float32[2]=clip( %x ){ maximum = 1, minimum = -1.5 } }"""
    )
    assert graph.nodes[0].op == Clip(-1.5, 1.0)


HEAD = "graph @g(%x: int8[2] q(0.5, 0)) -> (%x) {\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%y: int8[2] q(0.5, 0) = clap(%x)", ":2:25: unknown operator 'clap'"),
        ("%y: int8[2] q(0.5, 0) = clip(%z)", ":2:30: %z is not defined"),
        ("%y: int8[2] q(0.5, 0) = clip(%x) {minimum=0.0}", ":2:25: clip needs maximum"),
        (
            "%y: int8[2] q(0.5, 0) = clip(%x) {low=0.0}",
            ":2:35: clip has no attribute 'low'; it has minimum",
        ),
        ("%y: int8[2] q(0.5, 0) = clip(%x) {minimum=a}", ":2:43: expected a number; found 'a'"),
        (
            "%y: int8[2] q(0.5, 0) = clip(%x) {minimum=0, minimum=0}",
            ":2:46: minimum is given twice",
        ),
        (
            "%y: int8[2] q(0.25, 0) = clip(%x) {minimum=0, maximum=1}",
            ":2:1: %y is declared int8[2] (scale 0.25, zero point 0); clip gives int8[2] (scale 0.5, zero",
        ),
        (
            "%y: int8[2] q(0.5, 0) = clip(%x) {minimum=2, maximum=1}",
            ":2:1: clip: 2.0 must not exceed 1.0",
        ),
        (
            "%y: int8[2] q(0.5, 0) = clip(%x, %x) {minimum=0, maximum=1}",
            ":2:1: clip has 1 operands; got 2",
        ),
        (
            "%y: int8[2] q(0.5, 0) = clip(none) {minimum=0, maximum=1}",
            ":2:1: clip needs its operand x; it is absent",
        ),
        ("%y: int8[2] q(0.5, 0) = clip(x)", ":2:30: expected a value (%name) or none; found 'x'"),
        ("%x: int8[2] q(0.5, 0) = add(%x, %x)", ":2:1: %x is defined twice"),
        ("%y: int9[2] = add(%x, %x)", ":2:5: expected an element type (bool, int4,"),
        ("%y: int8[-2] = add(%x, %x)", ":2:9: extents must not be negative"),
        ("%y: int8[2.5] = add(%x, %x)", ":2:10: expected an integer; found '2.5'"),
        ("%y: int8[1,2] q(0.5, 0) = reshape(%x) {shape=(1, 2.0)}", "expected an integer; found '2.0'"),
        ("%y: int8[2] q(0.5, 0) = pad(%x) {padding=((0, 0, 0),), fill=0}", "padding has 2 elements"),
        (
            "%y: int8[2] q(0.5, 0) = pad(%x) {padding=((0,),), fill=0}",
            "padding must have 2 elements here; got 1",
        ),
        ("%k = constant int8[2] [1]", ":2:23: expected 2 elements of int8[2]; found 1"),
        (
            "%k = constant int8[2] [1, 200]",
            ":2:27: '200' is not a valid int8: expected an integer in [-128, 127]",
        ),
        ("%k = constant bool[1] [1]", "'1' is not a valid bool: expected true or false"),
        ("%k = constant int8[2] 1", ":2:23: expected data: [elements] or dense<…>; found '1'"),
        ("%k = constant int8[2] dense<AQ==>", "expected 2 bytes of int8[2]; found 1"),
        ("%k = constant int8[2] dense<A>", "not base64"),
        ("%k = constant int8[2] dense<AQ\u00e9=>", "not base64"),
        ("state %s: int8[1] initial [0] next %t", ":2:36: %t is not defined"),
        ("&", ":2:1: unexpected character '&'"),
        ("= 3", ":2:1: expected a node, a constant, a state, a subgraph or '}'; found '='"),
        ("", ":2:1: expected a node, a constant, a state, a subgraph or '}'; found the end of the text"),
        ("} x", ":2:3: expected the end of the text; found 'x'"),
    ],
)
def test_errors_say_where_and_what(body: str, message: str) -> None:
    end = "" if body == "" or body.startswith("}") else "\n}"
    with pytest.raises(TextFormError) as caught:
        parse(HEAD + body + end, source="net.mf")
    assert message in str(caught.value)
    assert str(caught.value).startswith("net.mf:")


def test_subgraphs_do_not_exhaust_the_stack() -> None:
    text = "graph @g() -> () { subgraph @s = " * 3000
    with pytest.raises(TextFormError, match="subgraphs can be nested at most 32 deep"):
        parse(text)


PIECES = ["", "%", '"', "(", ")", "q", "-1", "999999999999", "none", ",", "{", "e9"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_text_is_refused_or_parses(data: st.DataObject) -> None:
    text = EVERYTHING
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 6)))
        piece = data.draw(st.sampled_from(PIECES))
        text = text[:start] + piece + text[end:]
    with suppress(TextFormError):  # and nothing else
        parse(text)
