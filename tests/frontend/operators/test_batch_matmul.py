"""BATCH_MATMUL by int8 matrices: of int16 rows, and with a scale for each column."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.kernels.portable import check
from tests.kernels.random_networks import merge
from tests.needs import need_modules
from tests.tflite_writer import Array, Writer

# Products of these are float32 numbers, so that LiteRT's multipliers are ours.
FIRST, SECOND, OUT = 3 * 2.0**-14, 5 * 2.0**-8, 0.03
CASES = [(adj_x, adj_y, constant) for adj_x in (0, 1) for adj_y in (0, 1) for constant in (False, True)]


def swapped(shape: tuple[int, int], swap: int) -> tuple[int, int]:
    return (shape[1], shape[0]) if swap else shape


def by_int8(adj_x: int, adj_y: int, constant: bool) -> tuple[bytes, list[Array]]:
    """int16 [2, 5, 19] times int8 [1, 19, 7], and inputs."""
    rng = np.random.default_rng(adj_x + 2 * adj_y)
    first = rng.integers(-(2**15), 2**15, (2, *swapped((5, 19), adj_x))).astype(np.int16)
    second = rng.integers(-128, 128, (1, *swapped((19, 7), adj_y))).astype(np.int8)
    w = Writer()
    x = w.input(first.shape, "i2", FIRST)
    y = w.tensor(second.shape, "i1", SECOND, data=second) if constant else w.input(second.shape, "i1", SECOND)
    result = w.tensor((2, 5, 7), "i2", OUT)
    w.operator("BATCH_MATMUL", [x, y], result, "BatchMatMulOptions", AdjX=bool(adj_x), AdjY=bool(adj_y))
    return w.pack(), [first] if constant else [first, second]


@pytest.mark.parametrize(("adj_x", "adj_y", "constant"), CASES)
def test_int16_by_int8_is_that_of_litert(adj_x: int, adj_y: int, constant: bool) -> None:
    need_modules("ai_edge_litert")
    data, given = by_int8(adj_x, adj_y, constant)
    (index,) = oracle.operator_outputs(data)
    (ours,) = Interpreter(import_model(data)).run(*given)
    assert np.unique(ours).size > 50
    np.testing.assert_array_equal(ours, oracle.litert(data, [given], [index])[0][index])


def by_columns(dtype: str, *, layer: bool, adj_y: bool = False) -> tuple[bytes, Array]:
    """A matrix with a scale for each column, as a product or as a fully connected layer; and an input."""
    rng = np.random.default_rng(5)
    info = np.iinfo(dtype)
    first = rng.integers(info.min, info.max + 1, (6, 11)).astype(dtype)
    matrix = rng.integers(-127, 128, (4, 11)).astype(np.int8)
    scales = (10.0 ** rng.uniform(-3, -2, 4)).astype(np.float32)
    w = Writer()
    x = w.input(first.shape, dtype, 0.01, 0 if dtype == "i2" else 3)
    result = w.tensor((6, 4), dtype, 0.05)
    if layer:
        weights = w.tensor(matrix.shape, "i1", scales.tolist(), data=matrix, axis=0)
        w.operator("FULLY_CONNECTED", [x, weights, -1], result, "FullyConnectedOptions")
    else:
        turned = matrix if adj_y else np.ascontiguousarray(matrix.T)
        y = w.tensor(turned.shape, "i1", scales.tolist(), data=turned, axis=int(not adj_y))
        w.operator("BATCH_MATMUL", [x, y], result, "BatchMatMulOptions", AdjX=False, AdjY=adj_y)
    return w.pack(), first


@pytest.mark.parametrize("adj_y", [False, True])
@pytest.mark.parametrize("dtype", ["i1", "i2"])
def test_scales_of_columns_are_those_of_a_layer(dtype: str, adj_y: bool) -> None:
    """LiteRT's product has no scale there, and gives 0."""
    need_modules("tflite_micro")
    layer, given = by_columns(dtype, layer=True)
    (index,) = oracle.operator_outputs(layer)
    (ours,) = Interpreter(import_model(by_columns(dtype, layer=False, adj_y=adj_y)[0])).run(given)
    assert np.unique(ours).size > 10
    np.testing.assert_array_equal(ours, oracle.tflm(layer, [[given]], [index])[0][index])


def test_scales_of_rows_are_refused() -> None:
    rng = np.random.default_rng(0)
    w = Writer()
    matrix = rng.integers(-9, 9, (11, 4)).astype(np.int8)
    y = w.tensor(matrix.shape, "i1", [0.1] * 11, data=matrix, axis=0)
    result = w.tensor((6, 4), "i2", 0.1)
    w.operator("BATCH_MATMUL", [w.input((6, 11), "i2", 0.1), y], result, "BatchMatMulOptions")
    with pytest.raises(UnsupportedModelError, match="scales along its columns, axis 1"):
        import_model(w.pack())


def test_c_is_as_the_reference() -> None:
    models = [by_int8(*case)[0] for case in CASES]
    models += [by_columns(dtype, layer=False)[0] for dtype in ("i1", "i2")]
    check(merge([import_model(data) for data in models]))
