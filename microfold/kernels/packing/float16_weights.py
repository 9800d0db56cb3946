"""Lossless storage of float32 weights as float16.

Models with float16 weights have an operator that converts them to float32. Constant folding leaves float32
constants. If every value is exactly a float16, half of the flash is enough. A kernel converts the weights
exactly when it loads them, then computes as with float32.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from microfold.ir.types import Array
from microfold.kernels.call import Constant, KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.kernel import Kernel, ResourceTradeoff
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum


class HalfWeights(Kernel):
    """Mixin that turns a float32 kernel into one with float16 weights. It is the first base class.

    `fits` proves that each weight is a float16, so that its conversion is exact. The weights have the layout
    of the float32 kernel, with 2 bytes for each.
    """

    trades = frozenset({ResourceTradeoff.HALF_FLOATS})
    half: ClassVar[bool] = True

    def conversions(self, layer: LayerContext) -> float:
        """Count the conversions of weights in one call. Weights that are converted together count once."""
        raise NotImplementedError

    def supports(self, layer: LayerContext) -> str | None:
        reason = super().supports(layer)
        if reason is not None:
            return reason
        weights = layer.array(1)
        assert weights is not None
        return None if fits(weights) else "its weights are not all exact in float16"

    def terms(self, layer: LayerContext) -> Terms:
        return super().terms(layer) + Terms(converted=self.conversions(layer))


def fits(array: Array) -> bool:
    """Return whether every element is exactly a finite float16, including subnormal ones."""
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16)
    return bool(np.isfinite(halves).all()) and bool((halves.astype(array.dtype) == array).all())


def with_half_weights(call: KernelCall) -> KernelCall:
    """Return the call with its float32 weights, which must fit (`fits`), as float16 in the same order."""
    weights = call.parameters["weights"]
    assert isinstance(weights, Constant)
    halves = replace(weights, array=weights.array.astype(np.float16))
    return replace(call, parameters={**call.parameters, "weights": halves})


def pack_words(weights: Array) -> Array:
    """Pack float32 [..., n], which must fit (`fits`), into uint32 [..., n / 2], the first weight lower."""
    bits = weights.astype(np.float16).view(np.uint16).astype(np.uint32)
    return bits[..., 0::2] | bits[..., 1::2] << np.uint32(16)


def pack_pairs(matrix: Array) -> Array:
    """Pack float32 [channels, K], which must fit (`fits`), into uint32 [channels / 4, pairs, 4].

    A word has two adjacent weights of a channel, the first one in the lower half. Missing channels, and the
    missing weight of an odd number, are 0.
    """
    even = np.pad(matrix, ((0, 0), (0, matrix.shape[1] % 2)))
    return product_sum.interleave_channels(pack_words(even), 4)


def unpack_pairs(words: Array, channels: int, depth: int) -> Array:
    """Return the weights that `pack_pairs` has packed, float32 [channels, depth]."""
    rows = words.swapaxes(1, 2).reshape(-1, words.shape[1])[:channels]
    bits = np.stack([rows & np.uint32(0xFFFF), rows >> np.uint32(16)], axis=2).astype(np.uint16)
    return bits.reshape(channels, -1)[:, :depth].view(np.float16).astype(np.float32)
