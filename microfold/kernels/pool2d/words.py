"""Pooling for cores without SIMD instructions: words of four int8 channels.

An average adds two channels in the halfwords of a word, as bytes plus 128. With d <= 256 elements in the
window, the rounded mean is ``floor((|sum| + d / 2) / d)`` with the sign of the sum. For r = ceil(2^24 / d) =
(2^24 + e) / d, e < d, and n <= 128 d + d / 2,

    n * r / 2^24 = n / d + n * e / (d * 2^24)

has the same floor as n / d, because n * e < 2^24. The product n * r <= 128.5 * (2^24 + d) fits 32 bits.

A maximum compares words that are shifted until a channel's byte is the highest one.
"""

from __future__ import annotations

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.pool2d.portable import (
    POOL_FIELDS,
    pool_parameters,
    pool_types,
    unsupported_pool,
    window_terms,
)
from microfold.kernels.requantize import output_range
from microfold.ops.pool2d import AveragePool2D, MaxPool2D

# Largest number of window elements for which sums fit 16 bits and the reciprocal is long enough.
MAX_COUNT = 256


class _Pool2DWords(Kernel):
    """Pooling pixel by pixel, with the four channels of an aligned word at once.

    The kernel has no constants. The rows of a window that is as wide as the image are merged into one.

    Class attributes:
        kind: ``average`` or ``max``.
    """

    kind: str
    superseded_by = frozenset({"dsp"})
    fields = (*POOL_FIELDS, *output_range.LIMIT_FIELDS)

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_pool(layer, DType.INT8)
        _, out, window = pool_types(layer)
        if reason is None and out.shape[3] % 4 != 0:
            return f"it needs a multiple of 4 channels, so that words are aligned; got {out.shape[3]}"
        count = window.size[0] * window.size[1]
        if reason is None and self.kind == "average" and count > MAX_COUNT:
            return f"it needs a window of at most {MAX_COUNT} elements; got {count}"
        return reason

    def terms(self, layer: LayerContext) -> Terms:
        _, out, _ = pool_types(layer)
        return Terms(call=1) + window_terms(layer, "word", out.shape[3] // 4, joins_rows=True)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, out, window = pool_types(layer)
        return window_overlap(x, out, window, 1, reads_first=False)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def row_alignment(self, layer: LayerContext) -> int:
        return 4

    def lower(self, layer: LayerContext) -> KernelCall:
        low, high = output_range.integer_bounds(layer.node)
        clamp = (low, high) != DType.INT8.range
        spec: tuple[tuple[str, SpecValue], ...] = (("kind", self.kind),)
        if self.kind == "max":
            spec = (*spec, ("clamp", clamp))
        parameters = pool_parameters(layer)
        # Means are rounded, and therefore always clamped.
        if clamp or self.kind == "average":
            parameters |= {"output_minimum": low, "output_maximum": high}
        return KernelCall(CFunction("pool2d/words.c.j2", self.name, spec, self.fields), parameters)


class _AveragePool2DWords(_Pool2DWords):
    """Means, with sums of bytes plus 128 in the halfwords of two words, and division by a reciprocal product.

    The module docstring proves the division for up to `MAX_COUNT` elements, which `supports` checks.
    """

    op = AveragePool2D
    kind = "average"


class _MaxPool2DWords(_Pool2DWords):
    """Maxima that compare words with a channel's byte in the highest place; lower bytes only break ties."""

    op = MaxPool2D
    kind = "max"


@register
class AveragePool2DThumb1(_AveragePool2DWords):
    """Means for cores with the Thumb-1 instructions of Armv6-M."""

    name = "s8_average_pool2d__thumb1_words"
    features = frozenset({"thumb1"})


@register
class AveragePool2DThumb2(_AveragePool2DWords):
    """Means for cores with Thumb-2."""

    name = "s8_average_pool2d__thumb2_words"
    features = frozenset({"thumb2"})


@register
class MaxPool2DThumb1(_MaxPool2DWords):
    """Maxima for cores with the Thumb-1 instructions of Armv6-M."""

    name = "s8_max_pool2d__thumb1_words"
    features = frozenset({"thumb1"})


@register
class MaxPool2DThumb2(_MaxPool2DWords):
    """Maxima for cores with Thumb-2."""

    name = "s8_max_pool2d__thumb2_words"
    features = frozenset({"thumb2"})
