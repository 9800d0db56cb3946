"""float32 weights kept as float16 in flash, where that loses nothing.

Models are exported with float16 weights which an operator behind them converts; folded, these are float32.
Where each of them is a float16, as a fact about the values, half of the flash does. A kernel converts them
exactly where it loads them, and computes as it does with float32.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import Constant, KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.kernel import Kernel, Trade
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum


class HalfWeights(Kernel):
    """Before a kernel for float32 in the list of bases: the same one with weights in float16.

    `fits` proves that each weight is a float16, so that its conversion gives the model's float32. The layout
    is the other kernel's, with two bytes for each weight.
    """

    trades = frozenset({Trade.HALF_FLOATS})
    half: ClassVar[bool] = True

    def conversions(self, layer: LayerContext) -> float:
        """How often weights are converted, as many together as the kernel does."""
        raise NotImplementedError

    def supports(self, layer: LayerContext) -> str | None:
        reason = super().supports(layer)
        if reason is not None:
            return reason
        weights = layer.array(1)
        assert weights is not None
        return None if fits(weights) else "its weights are not all float16"

    def terms(self, layer: LayerContext) -> Terms:
        return super().terms(layer) + Terms(converted=self.conversions(layer))


def fits(array: Array) -> bool:
    """Whether every element is exactly a finite float16, subnormal ones included."""
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16)
    return bool(np.isfinite(halves).all()) and bool((halves.astype(array.dtype) == array).all())


def with_half_weights(call: KernelCall) -> KernelCall:
    """A call whose weights, float32 elements of which `fits` holds, are float16 in the same order."""
    weights = call.parameters["weights"]
    assert isinstance(weights, Constant)
    halves = replace(weights, array=weights.array.astype(np.float16))
    return replace(call, parameters={**call.parameters, "weights": halves})


def pack_words(weights: Array) -> Array:
    """uint32 [..., n / 2] from float32 [..., n] of which `fits` holds; the first of two in the lower half."""
    bits = weights.astype(np.float16).view(np.uint16).astype(np.uint32)
    return bits[..., 0::2] | bits[..., 1::2] << np.uint32(16)


def pack_pairs(matrix: Array) -> Array:
    """uint32 [channels / 4, pairs, 4] from float32 [channels, K] of which `fits` holds.

    The words hold two neighbouring weights of a channel, the first one in the lower half. Behind the last
    channel, and the last one of an odd number of weights, lies 0.
    """
    even = np.pad(matrix, ((0, 0), (0, matrix.shape[1] % 2)))
    return product_sum.interleave_channels(pack_words(even), 4)


def unpack_pairs(words: Array, channels: int, depth: int) -> Array:
    """Inverse of `pack_pairs`: float32 [channels, depth]."""
    rows = words.swapaxes(1, 2).reshape(-1, words.shape[1])[:channels]
    bits = np.stack([rows & np.uint32(0xFFFF), rows >> np.uint32(16)], axis=2).astype(np.uint16)
    return bits.reshape(channels, -1)[:, :depth].view(np.float16).astype(np.float32)
