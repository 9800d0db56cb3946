"""SVDF over several calls against a plain loop over Python integers."""

from __future__ import annotations

import numpy as np

from microfold.arithmetic import numerics
from microfold.ir.types import DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.recurrent.svdf import Svdf


def tensor(dtype: DType, array: np.ndarray, scale: float, zero_point: int = 0) -> Tensor:
    return Tensor(
        TensorType(dtype, array.shape, Quant.per_tensor(scale, zero_point)), array.astype(dtype.numpy)
    )


def scaled(x: int, multiplier: numerics.Multiplier) -> int:
    return int(numerics.multiply_by_quantized_multiplier(np.array(x), *multiplier))


def test_three_calls() -> None:
    rng = np.random.default_rng(7)
    filters, steps, width, rank = 6, 4, 5, 2
    op = Svdf(rank, ElementType(DType.INT8, Quant.per_tensor(0.1, -3)))
    feature = tensor(DType.INT8, rng.integers(-127, 128, (filters, width)), 0.02)
    time = tensor(DType.INT16, rng.integers(-3000, 3000, (filters, steps)), 0.001)
    bias = tensor(DType.INT32, rng.integers(-500, 500, filters // rank), 0.001)
    state = tensor(DType.INT16, np.zeros((1, filters * steps)), 0.004)
    window = [[0] * steps for _ in range(filters)]
    for _ in range(3):
        x = tensor(DType.INT8, rng.integers(-128, 128, (1, width)), 0.05, 11)
        output, following = op.evaluate([x, feature, time, bias, state])
        quants = [t.type.quant for t in (x, feature, time, state)]
        assert all(quant is not None for quant in quants)
        into, out_of = op.multipliers(*quants)
        for f in range(filters):
            product = sum(int(w) * (int(v) - 11) for w, v in zip(feature.data[f], x.data[0], strict=True))
            window[f] = [*window[f][1:], min(max(scaled(product, into), -32768), 32767)]
        expected = []
        for unit in range(filters // rank):
            total = int(bias.data[unit])
            for f in range(unit * rank, (unit + 1) * rank):
                total += sum(int(t) * s for t, s in zip(time.data[f], window[f], strict=True))
            expected.append(min(max(scaled(total, out_of) - 3, -128), 127))
        assert output.data.tolist() == [expected]
        assert following.data.reshape(filters, steps).tolist() == window
        state = following
