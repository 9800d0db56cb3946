"""Compression of float32 weights to int8 with one scale for each channel, if only rounding errors change.

A model with quantised weights only has an operator that converts the weights to float32. Constant folding
leaves float32 constants. If the values show that each channel's weights are integer multiples, at most 128,
of one scale (`step`), a quarter of the flash is enough. A kernel sums the products of activations and
multiples, then scales the sum. The results differ by a few units in the last place.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall
from microfold.kernels.fields import describe
from microfold.kernels.kernel import Kernel, ResourceTradeoff
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize.finish import OutputStage, clamped_finish

# Largest relative difference of a weight and its multiple of the scale: at least 2 units in the last place.
_TOLERANCE = 2.0**-22
# Number of weights of a channel that are checked first, to reject most scales quickly.
_SAMPLE = 48


def split_steps(matrix: Array) -> tuple[Array, Array] | None:
    """Split weights into multiples and scales; return None if they are no multiples.

    Args:
        matrix: float32 [channels, K].

    Returns:
        The multiples, int8 [channels, K], and the scales, float32 [channels].
    """
    steps = np.ones(matrix.shape[0], np.float32)
    for channel, row in enumerate(matrix):
        step = _step(row)
        if step is None:
            return None
        steps[channel] = step
    return np.rint(matrix / steps[:, None]).astype(np.int8), steps


def _step(row: Array) -> np.float32 | None:
    """Return the largest scale that divides all weights of a channel, at most 128 times; else None."""
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
    """Mixin that turns a float32 kernel in portable C into one with int8 weights. It is the first base class.

    `split_steps` proves that the weights are multiples of scales. The weights have the layout of the float32
    kernel. `channels` has records (scale, bias).
    """

    trades = frozenset({ResourceTradeoff.BYTE_WEIGHTS})

    def rows(self, layer: LayerContext) -> Array:
        """Return the constant weights as [channels, K]."""
        raise NotImplementedError

    def supports(self, layer: LayerContext) -> str | None:
        reason = super().supports(layer)
        if reason is None and split_steps(self.rows(layer)) is None:
            return "the weights of a channel must be multiples, at most 128, of one scale"
        return reason

    def cost(self, layer: LayerContext) -> float:
        # Instructions of a conversion. A weight is converted for one or two products.
        conversion = 3.0 if layer.target.has("fpu") else 60.0
        return super().cost(layer) + conversion * layer.node.macs()

    def byte_finish(self, layer: LayerContext, multiple: int) -> OutputStage:
        """Return the finish with scale and bias of each channel, padded to a multiple of channels."""
        split = split_steps(self.rows(layer))
        assert split is not None
        biases = product_sum.float_biases(layer, split[1].size)
        records = product_sum.pad_channels(np.stack([split[1], biases], axis=1), multiple)
        return clamped_finish(layer, Constant("channels", records, record="mf_step_bias"), ())

    def with_bytes(self, layer: LayerContext, call: KernelCall) -> KernelCall:
        """Return the call of the float32 kernel with its weights divided by their scales."""
        split = split_steps(self.rows(layer))
        weights = call.parameters["weights"]
        assert split is not None and isinstance(weights, Constant)
        # The layout is [channels / group, K, group] or [channels, K].
        group = weights.array.shape[2] if weights.array.ndim == 3 else 1
        steps = np.pad(split[1], (0, -split[1].size % group), constant_values=1)
        steps = steps.reshape(-1, 1, group) if weights.array.ndim == 3 else steps[:, None]
        packed = replace(weights, array=np.rint(weights.array / steps).astype(DType.INT8.numpy))
        function = call.function
        fields = describe(function.fields, channels="scale and bias of each channel")
        function = CFunction(function.template, function.name, function.spec, fields)
        return replace(call, function=function, parameters={**call.parameters, "weights": packed})
