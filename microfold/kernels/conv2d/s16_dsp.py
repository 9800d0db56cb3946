"""Convolution of int16 activations and int8 weights for cores with the DSP extension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.conv2d.portable import (
    conv_types,
    filter_matrix,
    is_pointwise,
    patch_parameters,
    unsupported_grouping,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.finish import OutputStage
from microfold.kernels.requantize.int16_sums import (
    CHUNK,
    Int16Requantization,
    int16_clamping,
    plan_int16_requantization,
)
from microfold.kernels.shapes import WINDOW_FIELDS
from microfold.ops.convolution.conv2d import Conv2D

# Number of pixels that are computed together.
PIXELS = 4


class Int16DspKernel(Kernel, Struct, frozen=True, eq=False):
    """Base class of kernels for int16 activations, with int8 or, for fewer instructions, int16 weights.

    SXTB16 widens pairs of int8 weights. int16 weights need twice the flash. See `pack_channel_pairs`.

    Attributes:
        packing: ``int8``, ``int16`` or ``int4``; empty until it is chosen.
    """

    packing: str = ""
    trades: frozenset[ResourceTradeoff] = frozenset()

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        wide = self.trades | {ResourceTradeoff.WIDE_WEIGHTS}
        return [replace(self, packing="int8"), replace(self, packing="int16", trades=wide)]


@register
class Conv2DInt16Dsp(Int16DspKernel, frozen=True):
    """SMLAD convolution of 4 pixels by 2 channels, whose panel in the scratch interleaves the 4 patches.

    SMLAD multiplies pairs of inputs with pairs of weights, see `pack_channel_pairs`.
    `plan_int16_requantization` proves the form of the records, and whether sums need 64 bits. A 64-bit sum
    adds up 32-bit sums of chunks of the inputs.
    """

    name = "s16_conv2d__dsp_4x2"
    op = Conv2D
    features = frozenset({"dsp"})
    fields = declare(
        Field("weights", "[output_channels / 2][pairs], two inputs of two channels"),
        "channels",
        Field("pairs", "pairs of inputs of one output, padded with zero weights"),
        "output_channels",
        "input_channels",
        "pixels",
        "batch",
        "input_height",
        "input_width",
        "output_height",
        "output_width",
        *WINDOW_FIELDS,
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_int16_conv(layer)

    def terms(self, layer: LayerContext) -> Terms:
        plan = int16_plan(layer)
        assert plan is not None
        chunks = -(-_pairs(layer) // (CHUNK // 2)) if plan.long else 1
        return self.product_terms(layer, chunks, plan.cost)

    def product_terms(self, layer: LayerContext, chunks: int, finish: str) -> Terms:
        """Count the code parts that compute sums and outputs.

        Args:
            chunks: chunks of a sum.
            finish: kind of the computation of an output from a sum.
        """
        _, _, out, window = conv_types(layer)
        pairs, words = _pairs(layer), _segments(layer)[1]
        pixels = out.size // out.shape[3]
        groups = -(-pixels // PIXELS)
        blocks = groups * -(-out.shape[3] // 2)
        segments = window.size[0] * (window.size[1] if window.dilations[1] > 1 else 1)
        patches = 0 if is_pointwise(window) else pixels
        return Terms(
            {
                "call": 1,
                "group": groups,
                f"{self.packing}_pair": blocks * pairs,
                "iteration": blocks * pairs / _unroll(pairs),
                "chunk": blocks * chunks,
                f"finish_{finish}": 8 * blocks,
                "segment": pixels * segments,
                "word": pixels * segments * words,
                "patch": patches,
                "patch_segment": patches * segments,
            }
        )

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        return window_overlap(x, out, window, PIXELS, across_rows=True)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def finish(self, layer: LayerContext) -> OutputStage:
        """Return the finish, which computes outputs from sums."""
        plan = int16_plan(layer)
        assert plan is not None
        clamp_kind, limits = int16_clamping(layer)
        spec = (("requantize", plan.form), ("long", plan.long), ("clamp_kind", clamp_kind))
        records = Constant("channels", product_sum.pad_records(plan.records, 2), record="mf_channel")
        return OutputStage(spec, {"channels": records, **limits})

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = conv_types(layer)
        finish = self.finish(layer)
        pointwise = is_pointwise(window)
        pairs = _pairs(layer)
        segment, _ = _segments(layer)
        matrix = pad_segments(filter_matrix(layer), segment)
        matrix = np.pad(matrix, ((0, 0), (0, 2 * pairs - matrix.shape[1])))
        spec = (
            ("packing", self.packing),
            *finish.spec,
            ("pointwise", pointwise),
            ("dilated", window.dilations[1] > 1),
            ("odd", x.shape[3] % 2 == 1),
            ("unroll", _unroll(pairs)),
            ("late_loads", layer.target.has("late_loads")),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", pack_channel_pairs(matrix, self.packing)),
            **finish.parameters,
            "pairs": pairs,
            "output_channels": out.shape[3],
        }
        scratch = 4 * PIXELS * pairs
        traversal, _ = patch_parameters(layer, scratch)
        parameters |= traversal | {"input_channels": x.shape[3]}
        function = CFunction("conv2d/s16_dsp.c.j2", self.name, spec, self.fields)
        return KernelCall(function, parameters, scratch)


def pad_segments(matrix: Array, segment: int) -> Array:
    """Pad each segment of [channels, K] with a zero, if its length is odd.

    Args:
        segment: length of a segment, a divisor of K.
    """
    channels = matrix.shape[0]
    segments = matrix.reshape(channels, -1, segment)
    return np.pad(segments, ((0, 0), (0, 0), (0, segment % 2))).reshape(channels, -1)


def pack_channel_pairs(matrix: Array, packing: str) -> Array:
    """Pack the weights of two channels a and b and two inputs next to each other.

    Args:
        matrix: int8 [channels, K], K even. A channel of zeros completes an odd number.
        packing: ``int8`` for bytes a0 b0 a1 b1, which SXTB16 widens; ``int16`` for words (a0, a1), (b0, b1);
            ``int4`` for two adjacent words of ``int8`` in the lower and in the upper nibbles of one word.

    Returns:
        int32 [channel pairs, pairs of inputs, words].
    """
    padded = product_sum.pad_channels(matrix, 2)
    lanes = padded.reshape(padded.shape[0] // 2, 2, -1, 2)
    if packing == "int4":
        return join_words(pack_channel_pairs(matrix, "int8"))
    if packing == "int8":
        return np.ascontiguousarray(lanes.transpose(0, 2, 3, 1)).reshape(*lanes.shape[::2], 4).view("<i4")
    wide = lanes.astype("<i2").transpose(0, 2, 1, 3)
    return np.ascontiguousarray(wide).reshape(*lanes.shape[::2], 4).view("<i4")


def join_words(words: Array) -> Array:
    """Join pairs of words whose bytes fit 4 bits, int32 [rows, words, 1], to [rows, words / 2, 1]."""
    first, second = (words.view("<u4")[:, start::2] & 0x0F0F0F0F for start in (0, 1))
    return (first | second << 4).astype("<u4").view("<i4")


def _segments(layer: LayerContext) -> tuple[int, int]:
    """Return the number of contiguous inputs in a segment of the image, and of the words that they need."""
    x, _, _, window = conv_types(layer)
    segment = x.shape[3] if window.dilations[1] > 1 else x.shape[3] * window.size[1]
    return segment, -(-segment // 2)


def _pairs(layer: LayerContext) -> int:
    """Return the number of pairs of inputs of one output, padded to a multiple of 2."""
    _, weights, _, _ = conv_types(layer)
    segment, words = _segments(layer)
    pairs = weights.size // weights.shape[0] // segment * words
    return pairs + pairs % 2


def _unroll(pairs: int) -> int:
    return 4 if pairs % 4 == 0 else 2


def unsupported_int16_conv(layer: LayerContext) -> str | None:
    """Return the reason why no int16 convolution kernel supports the layer, or None."""
    reason = unsupported_grouping(layer) or product_sum.unsupported_constants(layer, DType.INT16, DType.INT8)
    if reason is None and int16_plan(layer) is None:
        return "a bias or a multiplier is too large"
    return reason


def int16_plan(layer: LayerContext) -> Int16Requantization | None:
    """Return the requantisation of an int16 convolution; None if a bias or a multiplier does not fit."""
    multipliers = product_sum.channel_multipliers(layer)
    return plan_int16_requantization(layer, filter_matrix(layer), multipliers)
