"""CIRCULAR_BUFFER, TFLM's custom operator: state that moves on, and what runs every few calls only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from flatbuffers import flexbuffers

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from microfold.verification import verify
from tests.needs import need_modules
from tests.tflite_writer import Array, Writer

WIDTH, CHANNELS, ZERO_POINT = 2, 3, 7
INPUT = (1, 1, WIDTH, CHANNELS)


def options(cycles: int) -> bytes:
    return bytes(flexbuffers.Dumps({"cycles_max": cycles}))


def streaming(buffers: Sequence[tuple[int, bytes]]) -> bytes:
    """A network whose layers have buffers of so many slots, with these options, and take the largest."""
    w = Writer()
    x = w.input(INPUT, "i1", 0.1, ZERO_POINT)
    axis = w.tensor((1,), "i4", data=np.array([1]))
    for index, (slots, custom) in enumerate(buffers):
        buffer = w.tensor((1, slots, *INPUT[2:]), "i1", 0.1, ZERO_POINT, variable=True)
        w.operator("CIRCULAR_BUFFER", [x], buffer, custom=custom, inner=True)
        x = w.tensor(INPUT, "i1", 0.1, ZERO_POINT)
        inner = index < len(buffers) - 1
        w.operator("REDUCE_MAX", [buffer, axis], x, "ReducerOptions", KeepDims=True, inner=inner)
    return w.pack()


def calls(count: int) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(-128, 128, INPUT).astype(np.int8) for _ in range(count)]


def test_the_newest_comes_last_and_a_reset_empties_it() -> None:
    graph = import_model(streaming([(3, options(1))]))
    (state,) = graph.state
    assert (state.initial == ZERO_POINT).all()
    interpreter, given = Interpreter(graph), calls(5)
    for _ in range(2):
        seen = [np.full(INPUT, ZERO_POINT, np.int8)] * 3
        for x in given:
            seen.append(x)
            (result,) = interpreter.run(x)
            np.testing.assert_array_equal(result, np.max(seen[-3:], axis=0))
        interpreter.reset()


NETWORKS = {
    "always": [(4, options(1)), (2, options(1))],
    "every third call": [(2, options(3)), (3, options(1))],
    "every second of every second": [(1, options(2)), (3, options(2)), (2, options(1))],
    "left open": [(5, b""), (3, options(0)), (2, options(1))],
}
PERIODS = {"always": 1, "every third call": 3, "every second of every second": 4, "left open": 2}


@pytest.mark.parametrize("name", NETWORKS)
def test_as_tflm(name: str) -> None:
    """In the calls in which TFLM gets to the end."""
    need_modules("tflite_micro")
    from tflite_micro import runtime

    data = streaming(NETWORKS[name])
    theirs, ours = runtime.Interpreter.from_bytes(data, arena_size=1 << 16), Interpreter(import_model(data))
    for number, x in enumerate(calls(4 * PERIODS[name]), 1):
        theirs.set_input(x, 0)
        theirs.invoke()
        (result,) = ours.run(x)
        if number % PERIODS[name] == 0:
            np.testing.assert_array_equal(result, theirs.get_output(0))


def test_c_is_as_the_reference() -> None:
    graph = import_model(streaming(NETWORKS["every second of every second"]))
    result = verify.verify(compile_graph(graph, target.load("host")), [[x] for x in calls(9)])
    assert result.exact, result.differences


def test_what_follows_changes_in_some_calls_only() -> None:
    """The second buffer takes in what the first one gives in every third call."""
    interpreter, given = Interpreter(import_model(streaming(NETWORKS["every third call"]))), calls(9)
    results = [interpreter.run(x)[0] for x in given]
    firsts = [np.maximum(*given[i - 1 : i + 1]) for i in (2, 5, 8)]
    np.testing.assert_array_equal(results[8], np.max(firsts, axis=0))


@pytest.mark.parametrize(
    ("custom", "reason"),
    [
        (b"\x01\x02", "must be a flexbuffer map with cycles_max"),
        (bytes(flexbuffers.Dumps({"cycles_max": 1 << 40})), "cycles_max must be at most 2147483647"),
        (bytes(flexbuffers.Dumps([])), "must be a flexbuffer map with cycles_max"),
    ],
)
def test_options_that_mean_nothing(custom: bytes, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        import_model(streaming([(3, custom)]))


def test_options_cut_off_anywhere() -> None:
    """A refusal, or a number: nothing else comes out of bytes."""
    whole = options(2)
    refused = 0
    for end in range(1, len(whole)):
        for data in (whole[:end], whole[end:], whole[:end] + bytes(len(whole) - end)):
            try:
                import_model(streaming([(3, data)]))
            except UnsupportedModelError:
                refused += 1
    assert refused > len(whole)


def test_shapes_that_do_not_fit() -> None:
    w = Writer()
    x = w.input((1, 2, WIDTH, CHANNELS), "i1", 0.1)
    buffer = w.tensor((1, 4, WIDTH, CHANNELS), "i1", 0.1, variable=True)
    w.operator("CIRCULAR_BUFFER", [x], buffer, custom=options(1))
    with pytest.raises(UnsupportedModelError, match=r"it must be int8 \[1,1,W,C\] in \[1,N,W,C\]"):
        import_model(w.pack())
