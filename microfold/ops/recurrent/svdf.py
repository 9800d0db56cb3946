"""Singular value decomposition filter: a recurrent layer over a sliding window of time."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops import accumulate
from microfold.ops.elementwise.unary_rule import require_per_tensor


@register
class Svdf(Op, frozen=True):
    """``out[u] = bias[u] + sum of time[f, t] * window[f, t]`` over t and over the filters f of unit u.

    Operands are ``x [N, I]``, ``feature [F, I]``, ``time [F, T]`` and ``bias [U]`` with ``U = F / rank``:
    each unit has `rank` filters. The state [N, F * T] contains each filter's last T products ``feature @ x``,
    the newest last. Results are [N, U] and the state for the next call.

    For int8, the state and ``time`` are int16 or int8. A product is clamped to the state's type before its
    zero point is added; this sum wraps around.
    """

    name: ClassVar[str] = "svdf"

    rank: int
    out: ElementType

    def infer(
        self,
        x: TensorType,
        feature: TensorType,
        time: TensorType,
        bias: TensorType | None,
        state: TensorType,
    ) -> tuple[TensorType, TensorType]:
        require(
            x.rank == feature.rank == time.rank == 2
            and feature.shape[1] == x.shape[1]
            and feature.shape[0] == time.shape[0],
            f"svdf: needs x [N, I], feature [F, I] and time [F, T]; they are {x}, {feature} and {time}",
        )
        filters, steps = time.shape
        require(
            self.rank > 0 and filters % self.rank == 0,
            f"svdf: the {filters} filters must divide into groups of rank {self.rank}",
        )
        require(
            state.shape == (x.shape[0], filters * steps),
            f"svdf: the state must be [{x.shape[0]}, {filters * steps}]; it is {state}",
        )
        dtypes = (x.dtype, feature.dtype, time.dtype, state.dtype, self.out.dtype)
        narrow = (DType.INT8, DType.INT8, state.dtype, state.dtype, DType.INT8)
        require(
            dtypes == (DType.FLOAT32,) * 5 or (dtypes == narrow and state.dtype in (DType.INT8, DType.INT16)),
            f"svdf: the types {', '.join(dtype.value for dtype in dtypes)} are not supported",
        )
        units = filters // self.rank
        if x.dtype is DType.INT8:
            require_per_tensor("svdf", input=x, feature=feature, time=time, output=self.out)
            require(
                state.quant is not None and state.quant.axis is None,
                f"svdf: the state must have one scale; its quantisation is {state.quant}",
            )
            assert x.quant is not None
            assert feature.quant is not None
            assert time.quant is not None
            assert state.quant is not None
            # Raises an error if the scales have no multiplier.
            self.multipliers(x.quant, feature.quant, time.quant, state.quant)
        if bias is not None:
            wanted = DType.INT32 if x.dtype is DType.INT8 else DType.FLOAT32
            require(
                bias.dtype is wanted and bias.shape == (units,),
                f"svdf: the bias must be {wanted.value} [{units}]; it is {bias}",
            )
        return TensorType(self.out.dtype, (x.shape[0], units), self.out.quant), state

    def multipliers(
        self, x: Quant, feature: Quant, time: Quant, state: Quant
    ) -> tuple[Multiplier, Multiplier]:
        """Return the multipliers of products to the state's scale, and of sums to the output's scale."""
        assert self.out.quant is not None
        limit = numerics.SMALL_MULTIPLIER
        return (
            numerics.effective_multiplier([x.scale, feature.scale], state.scale, limit),
            numerics.effective_multiplier([state.scale, time.scale], self.out.quant.scale, limit),
        )

    def reference(
        self, x: Tensor, feature: Tensor, time: Tensor, bias: Tensor | None, state: Tensor
    ) -> tuple[Array, Array]:
        batch = x.type.shape[0]
        filters, steps = time.type.shape
        if x.type.dtype.is_float:
            newest = (x.data @ feature.data.T).astype(np.float32)
            window = self._shifted(state.data.reshape(batch, filters, steps), newest)
            sums = (window * time.data).sum(axis=-1, dtype=np.float32)
            total = sums.reshape(batch, -1, self.rank).sum(axis=-1, dtype=np.float32)
            result = total + (bias.data if bias is not None else np.float32(0))
            return result.astype(np.float32), window.reshape(batch, -1)
        quants = x.type.quant, feature.type.quant, time.type.quant, state.type.quant
        assert all(quant is not None for quant in quants)
        into, out_of = self.multipliers(*(quant for quant in quants if quant is not None))
        products = accumulate.exact_int(accumulate.centred(x) @ feature.data.T.astype(np.float64))
        scaled = numerics.multiply_by_quantized_multiplier(products, *into)
        assert state.type.quant is not None
        zero_point = state.type.quant.zero_point
        limited = np.clip(scaled.astype(np.int64), *state.type.dtype.range)
        newest = (limited + zero_point).astype(state.data.dtype)
        window = self._shifted(state.data.reshape(batch, filters, steps), newest)
        sums = ((window.astype(np.int64) - zero_point) * time.data).sum(axis=-1)
        total = sums.reshape(batch, -1, self.rank).sum(axis=-1)
        total = (total + (bias.data if bias is not None else 0)).astype(np.int32)
        return numerics.requantize(total, 0, out_of, self.out), window.reshape(batch, -1)

    @staticmethod
    def _shifted(window: Array, newest: Array) -> Array:
        return np.concatenate([window[..., 1:], newest[..., None]], axis=-1)

    def macs(
        self,
        x: TensorType,
        feature: TensorType,
        time: TensorType,
        _bias: TensorType | None,
        _state: TensorType,
    ) -> int:
        return x.shape[0] * (feature.size + time.size)
