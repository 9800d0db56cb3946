"""float32 weights kept as int8 and a scale for each channel in flash, where that loses nothing but roundings.

Models whose weights alone are quantised have an operator behind them that makes them float32; folded, these
are float32 constants. Where each channel's weights are multiples of one step, at most 128 times as large, as
a fact about the values, a quarter of the flash does. A kernel adds up products of activations with the
multiples, and scales the sum: the same number, rounded otherwise by a few units in the last place.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall
from microfold.kernels.fields import describe
from microfold.kernels.kernel import Kernel, Trade
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize.finish import Finish, clamped_finish

# Of a weight, how far the multiple of the step may be off: two units in the last place, at least.
_TOLERANCE = 2.0**-22
# Weights of a channel that are looked at before all of them are.
_SAMPLE = 48


def split_steps(matrix: Array) -> tuple[Array, Array] | None:
    """Weights as multiples of a step; None if they are not.

    Args:
        matrix: float32 [channels, K].

    Returns:
        int8 [channels, K], and steps, float32 [channels].
    """
    steps = np.ones(matrix.shape[0], np.float32)
    for channel, row in enumerate(matrix):
        step = _step(row)
        if step is None:
            return None
        steps[channel] = step
    return np.rint(matrix / steps[:, None]).astype(np.int8), steps


def _step(row: Array) -> np.float32 | None:
    """The largest step that all weights of a channel are multiples of, at most 128 of it."""
    extreme = row[np.abs(row).argmax()] if row.size else np.float32(0)
    if extreme == 0:
        return np.float32(1)
    most = np.arange(1, 129 if extreme < 0 else 128)
    steps = (np.abs(extreme) / most).astype(np.float32)
    for part in (row[:_SAMPLE], row):
        multiples = np.rint(part / steps[:, None])
        exact = np.abs(multiples * steps[:, None] - part) <= _TOLERANCE * np.abs(part)
        steps = steps[exact.all(axis=1)]
        if not steps.size:
            return None
    return steps[0]


class ByteWeights(Kernel):
    """Before a kernel for float32 in portable C in the list of bases: the same one with weights of int8.

    `split_steps` proves that weights are multiples of steps. The layout is the other kernel's. `channels` are
    records (step, bias).
    """

    trades = frozenset({Trade.BYTE_WEIGHTS})

    def rows(self, layer: LayerContext) -> Array:
        """The constant weights as [channels, K]."""
        raise NotImplementedError

    def supports(self, layer: LayerContext) -> str | None:
        reason = super().supports(layer)
        if reason is None and split_steps(self.rows(layer)) is None:
            return "its weights are no multiples, up to 128, of a step for each channel"
        return reason

    def cost(self, layer: LayerContext) -> float:
        # A weight is converted for one product or two.
        conversion = 3.0 if layer.target.has("fpu") else 60.0
        return super().cost(layer) + conversion * layer.node.macs()

    def byte_finish(self, layer: LayerContext, multiple: int) -> Finish:
        """The step and the bias of each channel, these padded to a multiple of so many."""
        split = split_steps(self.rows(layer))
        assert split is not None
        biases = product_sum.float_biases(layer, split[1].size)
        records = product_sum.pad_channels(np.stack([split[1], biases], axis=1), multiple)
        return clamped_finish(layer, Constant("channels", records, record="mf_step_bias"), ())

    def with_bytes(self, layer: LayerContext, call: KernelCall) -> KernelCall:
        """The call of the kernel for float32, its weights divided by their steps."""
        split = split_steps(self.rows(layer))
        weights = call.parameters["weights"]
        assert split is not None and isinstance(weights, Constant)
        # [channels / group, K, group], or [channels, K].
        group = weights.array.shape[2] if weights.array.ndim == 3 else 1
        steps = np.pad(split[1], (0, -split[1].size % group), constant_values=1)
        steps = steps.reshape(-1, 1, group) if weights.array.ndim == 3 else steps[:, None]
        packed = replace(weights, array=np.rint(weights.array / steps).astype(DType.INT8.numpy))
        function = call.function
        fields = describe(function.fields, channels="step and bias of each channel")
        function = CFunction(function.template, function.name, function.spec, fields)
        return replace(call, function=function, parameters={**call.parameters, "weights": packed})
