"""Real zeros whose scale is 0: what a quantiser writes that has seen nothing else, as of a first state."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import trace_model
from tests import oracle
from tests.needs import need_modules
from tests.tflite_writer import Writer

WEIGHTS = np.random.default_rng(0).integers(-127, 128, (4, 6)).astype(np.int8)


def first_state(dtype: str, zero_point: int, zero: int) -> bytes:
    """A product and a product of matrices with a state that is filled with a number of scale 0."""
    w = Writer()
    x = w.input((2, 6), dtype, 0.01)
    shape = w.tensor((2,), "i4", data=np.array([2, 6]))
    state = w.tensor((2, 6), dtype, 0.0, zero_point)
    w.operator("FILL", [shape, w.tensor((), dtype, 0.0, zero_point, data=np.array(zero))], state, inner=True)
    w.operator("MUL", [x, state], w.tensor((2, 6), dtype, 0.02), "MulOptions")
    bias = w.tensor((4,), "i8" if dtype == "i2" else "i4", data=np.zeros(4))
    weights = w.tensor((4, 6), "i1", 0.05, data=WEIGHTS)
    w.operator(
        "FULLY_CONNECTED", [state, weights, bias], w.tensor((2, 4), dtype, 0.1), "FullyConnectedOptions"
    )
    return w.pack()


@pytest.mark.parametrize(("dtype", "zero_point"), [("i1", 3), ("i2", 0)])
def test_products_with_them(dtype: str, zero_point: int) -> None:
    need_modules("tflite_micro", "ai_edge_litert")
    data = first_state(dtype, zero_point, zero_point)
    traced = trace_model(data)
    calls = [oracle.inputs_of(traced, seed) for seed in range(2)]
    found = oracle.litert(data, calls, oracle.compared_tensors(data, traced))
    assert oracle.differences(traced, calls, found) == []


def test_other_numbers_mean_nothing() -> None:
    with pytest.raises(UnsupportedModelError, match=r"a scale must be in .* it is 0; quantise again"):
        trace_model(first_state("i1", 3, 4))
