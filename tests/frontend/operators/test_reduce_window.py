"""STABLEHLO_REDUCE_WINDOW against LiteRT, and its C against the reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.kernels.portable import check
from tests.kernels.random_networks import merge
from tests.needs import need_modules
from tests.reduce_window_models import FUNCTIONS, draw_pool, draw_reduce_window

# Sums and products of narrow integers are those of quantised ones to us.
CASES = [
    *itertools.product(FUNCTIONS, ("f4", "i4", "i8")),
    *itertools.product(("MAXIMUM", "MINIMUM"), ("i1", "i2", "u1")),
]
CASES.remove(("MAXIMUM", "u1"))  # their initial value is negative


@pytest.mark.parametrize(("function", "dtype"), CASES)
def test_as_litert(function: str, dtype: str) -> None:
    need_modules("ai_edge_litert")
    for seed in range(12):
        data, inputs = draw_reduce_window(function, dtype, seed)
        _compare(data, inputs)


def test_pools_of_images() -> None:
    need_modules("ai_edge_litert")
    for seed in range(12):
        data, inputs = draw_pool(seed)
        _compare(data, inputs)
        assert "max_pool2d" in {node.op.name for node in import_model(data).nodes}


def _compare(data: bytes, inputs: list[oracle.Array]) -> None:
    (result,) = Interpreter(import_model(data)).run(*inputs)
    ((output, theirs),) = oracle.litert(data, [inputs], oracle.operator_outputs(data))[0].items()
    assert not oracle.difference(result, np.asarray(theirs, result.dtype)), output
    assert result.shape == theirs.shape


def test_c_is_as_the_reference() -> None:
    models = [draw_reduce_window(function, dtype, 3)[0] for function, dtype in CASES]
    check(merge([import_model(data) for data in (*models, draw_pool(0)[0])]))


def test_sums_of_quantised_windows_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="must have one scale per tensor"):
        import_model(draw_reduce_window("ADD", "i1", 0)[0])
