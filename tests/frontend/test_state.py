"""Resource variables become the graph's state."""

from __future__ import annotations

import numpy as np

from microfold.frontend.tflite import load, trace_model
from microfold.ir.graph import verify
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.frontend import models
from tests.frontend.mutations import with_scale
from tests.needs import need_modules


def test_variables_live_from_call_to_call_until_reset() -> None:
    graph = load(models.MADE / "stream_int8.tflite")
    verify(graph)
    assert graph.state
    for state in graph.state:
        assert state.next is not state.value
        assert state.value.type.quant is not None
        # What CALL_ONCE assigns, or real zero.
        assert (state.initial == state.value.type.quant.zero_point).all()
    rng = np.random.default_rng(3)
    inputs = [rng.integers(-128, 128, value.type.shape).astype(np.int8) for value in graph.inputs]
    interpreter = Interpreter(graph)

    def trace() -> list[np.ndarray]:
        """The results of all nodes in one call: outputs alone may saturate."""
        seen: list[np.ndarray] = []
        interpreter.run(
            *inputs, observe=lambda _node, results: seen.extend(tensor.data for tensor in results)
        )
        return seen

    first, second = trace(), trace()
    assert any((a != b).any() for a, b in zip(first, second, strict=True))
    interpreter.reset()
    for a, b in zip(first, trace(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_variable_is_read_as_it_was_when_the_call_began() -> None:
    graph = load(models.MADE / "stream_f32.tflite")
    readers = {value for node in graph.nodes for value in node.operands}
    assert all(state.value in readers for state in graph.state)


def test_a_variable_keeps_the_bytes_of_what_has_another_scale() -> None:
    need_modules("tflite_micro")
    first_read, assigned, second_read = 12, 18, 19
    data = (models.MADE / "stream_int8.tflite").read_bytes()
    for tensor, scale in ((first_read, 0.011), (assigned, 0.02), (second_read, 0.3)):
        data = with_scale(data, tensor, scale)
    traced = trace_model(data)
    calls = [oracle.inputs_of(traced, seed) for seed in range(4)]
    assert oracle.judge(data, traced, calls) == ("tflm", [])
