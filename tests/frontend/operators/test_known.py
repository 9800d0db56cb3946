"""Results that are known when the model is compiled, where doubles would give others."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.needs import need_modules
from tests.tflite_writer import Array, Writer


def _range(dtype: str, *limits: float) -> bytes:
    """Return a model of the maximum of a range and its input, which has one element."""
    w = Writer()
    numbers = w.tensor((1,), dtype)
    w.operator("RANGE", [w.tensor((), dtype, data=np.array(n, dtype)) for n in limits], numbers, inner=True)
    w.operator("MAXIMUM", [numbers, w.input((1,), dtype)], w.tensor((1,), dtype))
    return w.pack()


def _pad(fill: int) -> bytes:
    """Return a model that pads two int64 numbers."""
    w = Writer()
    padding, given = np.array([[1, 2]], np.int32), np.array([fill], np.int64)
    operands = [w.tensor((1, 2), "i4", data=padding), w.tensor((1,), "i8", data=given)]
    w.operator("PADV2", [w.input((2,), "i8"), *operands], w.tensor((5,), "i8"))
    return w.pack()


LARGE = 2**53
CASES = {
    "float32 quotient": (_range("f4", 4, -14, -0.9), np.array([-np.inf], np.float32)),
    "int64 quotient": (_range("i8", 0, LARGE + 1, LARGE // 2), np.array([0])),
    "int64 between doubles": (_range("i8", LARGE, LARGE + 1, 1), np.array([0])),
    "fill between doubles": (_pad(LARGE + 1), np.array([1, 2])),
    "largest fill": (_pad(2**63 - 1), np.array([1, 2])),
}


@pytest.mark.parametrize(("data", "given"), CASES.values(), ids=CASES)
def test_as_litert(data: bytes, given: Array) -> None:
    need_modules("ai_edge_litert")
    graph = import_model(data)
    (output,) = oracle.operator_outputs(data)[-1:]
    (tensors,) = oracle.litert(data, [[given]], [output])
    (ours,) = Interpreter(graph).run(given)
    np.testing.assert_array_equal(ours, tensors[output])


@pytest.mark.parametrize("limits", [(-(2**31), 2**31 - 1, 2**30), (0, 2**31 - 1, 2**30)])
def test_sums_that_overflow(limits: tuple[int, int, int]) -> None:
    with pytest.raises(UnsupportedModelError, match=r"limit - start \+ delta must fit int32"):
        import_model(_range("i4", *limits))
