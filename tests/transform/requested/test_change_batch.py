from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from microfold.errors import InputError, UnsupportedModelError
from microfold.frontend.tflite import load
from microfold.ir.graph import Graph, verify
from microfold.ir.interpret import Interpreter
from microfold.ir.text import parse, to_text
from microfold.transform.requested.change_batch import ChangeBatch
from tests.evaluation import random_array
from tests.frontend import models
from tests.random_graphs import graphs
from tests.transform.check import check_declined

BEFORE = """\
graph @g(%x: float32[1,4,2]) -> (%y, %t) {
  state %s: float32[1,4] initial [1.0, 2.0, 3.0, 4.0] next %b
  %a: float32[2,4] = reshape(%x) {shape=(2, 4)} | clip() {minimum=0.0, maximum=6.0}
  %w = constant float32[1,4] [1.0, 2.0, 3.0, 4.0]
  %t: float32[2,1] = fully_connected(%a, %w)
  %b: float32[1,4] = add(%s, %w)
  %k = constant float32[1,1] [9.0]
  %y: float32[1,5] = concatenate(%b, %k) {axis=1}
}
"""
AFTER = """\
graph @g(%x: float32[3,4,2]) -> (%y, %t) {
  state %s: float32[3,4] initial [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0] next %b
  %a: float32[6,4] = reshape(%x) {shape=(6, 4)} | clip() {minimum=0.0, maximum=6.0}
  %w = constant float32[1,4] [1.0, 2.0, 3.0, 4.0]
  %t: float32[6,1] = fully_connected(%a, %w)
  %b: float32[3,4] = add(%s, %w)
  %k = constant float32[3,1] [9.0, 9.0, 9.0]
  %y: float32[3,5] = concatenate(%b, %k) {axis=1}
}
"""


def check_samples(one: Graph, several: Graph, batch: int) -> None:
    """Each sample gives what it gave alone, call after call."""
    verify(several)
    rng = np.random.default_rng(3)
    together, alone = Interpreter(several), [Interpreter(one) for _ in range(batch)]
    for _ in range(2):
        samples = [[random_array(rng, value.type) for value in one.inputs] for _ in range(batch)]
        inputs = [np.concatenate(arrays) for arrays in zip(*samples, strict=True)]
        with np.errstate(all="ignore"):
            expected = [interpreter.run(*arrays) for interpreter, arrays in zip(alone, samples, strict=True)]
            results = together.run(*inputs)
        for result, parts in zip(results, zip(*expected, strict=True), strict=True):
            whole = np.concatenate(parts)
            if result.dtype.kind == "f":
                largest = float(np.abs(whole[np.isfinite(whole)]).max(initial=1e-30))
                np.testing.assert_allclose(result, whole, rtol=0, atol=1e-5 * largest)
            else:
                np.testing.assert_array_equal(result, whole)


def test_text() -> None:
    graph = parse(BEFORE)
    several = ChangeBatch(3)(graph)
    assert to_text(several) == AFTER
    check_samples(graph, several, 3)
    assert ChangeBatch(3)(several) is several
    assert to_text(ChangeBatch(1)(several)) == BEFORE


def test_another_axis() -> None:
    """Time comes first: the batch follows moved, dropped and reduced axes, and states that name theirs."""
    graph = parse(
        dedent(
            """
            graph @g(%x: float32[4,1,2]) -> (%p, %m, %r, %n) {
              state %s: float32[2,1] initial [1.0, 2.0] next %n
              %t: float32[1,4,2] = transpose(%x) {permutation=(1, 0, 2)}
              %f: float32[4,2] = reshape(%t) {shape=(4, 2)}
              %w = constant float32[3,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
              %p: float32[4,3] = fully_connected(%f, %w)
              %m: float32[1,2] = mean(%x) {axes=(0,), keep_dims=false}
              %k = constant float32[4,1,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
              %r: float32[4,1,4] = concatenate(%x, %k) {axis=2}
              %u: float32[2,1] = transpose(%m) {permutation=(1, 0)}
              %n: float32[2,1] = add(%s, %u)
            }
            """
        )
    )
    step = ChangeBatch(3, axes=(("x", 1), ("s", 1)))
    several = step(graph)
    verify(several)
    shapes = [value.type.shape for value in (*several.inputs, *several.outputs)]
    assert shapes == [(4, 3, 2), (12, 3), (3, 2), (4, 3, 4), (2, 3)]
    assert step(several) is several
    samples = np.random.default_rng(3).standard_normal((4, 3, 2)).astype(np.float32)
    together, alone = Interpreter(several), [Interpreter(graph) for _ in range(3)]
    for _ in range(2):
        found = together.run(samples)
        each = [one.run(samples[:, i : i + 1]) for i, one in enumerate(alone)]
        for result, parts, axis in zip(found, zip(*each, strict=True), (0, 0, 1, 1), strict=True):
            np.testing.assert_allclose(result, np.concatenate(parts, axis), rtol=1e-5)
    with pytest.raises(InputError, match="unknown input or state 'z'; known: 'x', 's'"):
        ChangeBatch(3, axes=(("z", 1),))(graph)
    with pytest.raises(InputError, match="the axis of 'x' must be below 3; got 3"):
        ChangeBatch(3, axes=(("x", 3),))(graph)
    with pytest.raises(UnsupportedModelError, match="mean works along the axis of the batch"):
        ChangeBatch(8, axes=(("x", 0), ("s", 1)))(graph)


def test_an_output_with_its_batch_elsewhere() -> None:
    text = """
        graph @g(%x: float32[1,4,2]) -> (%y) {
          %y: float32[4,1,2] = transpose(%x) {permutation=(1, 0, 2)}
        }
        """
    graph = parse(dedent(text))
    with pytest.raises(UnsupportedModelError, match="its batch would be axis 1; pass axes to allow this"):
        ChangeBatch(3)(graph)
    assert ChangeBatch(3, axes=(("x", 0),))(graph).outputs[0].type.shape == (4, 3, 2)


def test_nothing_to_change() -> None:
    check_declined(ChangeBatch(), BEFORE)
    check_declined(ChangeBatch(1), BEFORE, "its batch is 1")


@pytest.mark.parametrize("name", ["cnn_int8", "dscnn_bn_int8", "cnn_f32", "preact_bn_int8", "stream_int8"])
def test_models(name: str) -> None:
    graph = load(models.MADE / f"{name}.tflite")
    check_samples(graph, ChangeBatch(2)(graph), 2)


@pytest.mark.parametrize("name", ["lstm_int8", "lstm_parts_f32", "lstm_parts_int8", "rnn_bidirectional_f32"])
def test_recurrent_layers(name: str) -> None:
    graph = load(models.MADE / "recurrent" / f"{name}.tflite")
    check_samples(graph, ChangeBatch(4)(graph), 2)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("float32[1,2] = mean(%z) {axes=(0,), keep_dims=true}", "mean works along the axis of the batch"),
        ("float32[3,4,2] = broadcast_to(%x) {shape=(3, 4, 2)}", "broadcasts the batch of float32[1,4,2]"),
        ("float32[3,4,2] = add(%x, %c)", "broadcasts the batch of float32[1,4,2] over float32[3,4,2]"),
        ("float32[8,2] = concatenate(%z, %z) {axis=0}", "works along the axis of the batch"),
        ("float32[1,5,2] = pad(%x) {padding=((0, 0), (0, 1), (0, 0)), fill=0.0}", ""),
        (
            "float32[2,4,2] = pad(%x) {padding=((0, 1), (0, 0), (0, 0)), fill=0.0}",
            "pads the axis of the batch",
        ),
        (
            "float32[2,2] = strided_slice(%z) {begin=(1, 0), size=(2, 2), strides=(1, 1)}",
            "a part of the batch",
        ),
        ("float32[4,2] = add(%z, %k)", "reads different rows of float32[4,2] for different samples"),
        ("float32[4,4] = fully_connected(%z, %z)", "weights that depend on an input"),
        (
            "float32[4,4] = batch_matmul(%z, %z) {transpose_first=false, transpose_second=true}",
            "mixes the rows of a matrix that depends on an input",
        ),
        (
            "float32[2,2] = batch_matmul(%z, %k) {transpose_first=true, transpose_second=false}",
            "sums along the axis of the batch",
        ),
        ("float32[8] = reshape(%x) {shape=(8,)}", ""),
        ("float32[1,4,4] = batch_matmul(%x, %x) {transpose_first=false, transpose_second=true}", ""),
    ],
)
def test_operators(node: str, reason: str) -> None:
    graph = parse(
        f"""
        graph @g(%x: float32[1,4,2]) -> (%y) {{
          %z: float32[4,2] = reshape(%x) {{shape=(4, 2)}}
          %c = constant float32[3,4,2] [{", ".join(map(str, range(24)))}]
          %k = constant float32[4,2] [{", ".join(map(str, range(8)))}]
          %y: {node}
        }}
        """
    )
    if not reason:
        check_samples(graph, ChangeBatch(3)(graph), 3)
        return
    with pytest.raises(UnsupportedModelError) as error:
        ChangeBatch(3)(graph)
    (problem,) = error.value.problems
    assert problem.where.endswith("%y")
    assert reason in problem.reason


def test_what_has_no_batch() -> None:
    with pytest.raises(InputError, match="the batch must be positive; got 0"):
        ChangeBatch(0)(parse(BEFORE))
    for types in (("float32[1,2]", "float32[2,2]"), ("float32[]", "float32[]")):
        graph = parse(f"graph @g(%x: {types[0]}, %z: {types[1]}) -> (%x) {{ }}")
        with pytest.raises(UnsupportedModelError, match="must have the batch as their first dimension"):
            ChangeBatch(2)(graph)
    unlike = AFTER.replace("initial [1.0", "initial [0.0")
    with pytest.raises(UnsupportedModelError, match="its content differs between the 3 samples"):
        ChangeBatch(2)(parse(unlike))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs())
def test_random_graphs(graph: Graph) -> None:
    try:
        several = ChangeBatch(2)(graph)
    except UnsupportedModelError:
        return
    check_samples(graph, several, 2)
