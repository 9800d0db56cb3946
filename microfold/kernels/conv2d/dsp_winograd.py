"""int8 convolution of 3x3 filters by exact integer Winograd transforms, for cores with the DSP extension.

F(m x m, 3 x 3) computes tiles of m x m outputs with (m + 2)^2 multiplications per channel instead of 9 m^2
(Lavin and Gray, https://arxiv.org/abs/1509.09308). It is exact over the integers: scaled filter transforms
have integer coefficients, all sums are modulo 2^32, and the result is a multiple of the accumulator:

- m = 2: filters (2 G) g (2 G)^T. The factor is 4.
- m = 4: rows of G times 24, but the last row times 6, which the output transform compensates. The factor is
  576 = 64 * 9. A multiplication by the inverse of 9 modulo 2^32 leaves a factor of 64.

Requantisation with a common last shift needs a factor of 2^(2 + j) or 2^(6 + j), so that the sums are also
multiplied by 2^j. The multiplied accumulators must stay below 2^31.

The transformed filters must fit int16, which `supports` checks, and so must the transformed inputs. For
m = 2, they are in [-512, 510], and instructions for pairs transform two channels at a time.

The transform of m = 4 has shifts, for which no pair instructions exist. Two channels a and b become the
integer a + 65536 * b instead. A result is a pair again if a's result is never negative, because it then
borrows nothing from b's. With a = q + 128 in [0, 255], a's results are in [-12750, 17340]. Adding 12800 at
each position makes them [50, 30140]. With b = q, b's results are in [-12768, 12750].

An offset on the last two of the six inputs of a dimension adds the same offset to all its results
(4 d0 - 5 d2 + d4 and so on). Therefore the 12800 are added to the four inputs in the last corner only. The
outputs of a tile then exceed the true ones by the convolution of `INPUT_OFFSETS` with the filters of the
channels a. The biases compensate it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.conv2d.portable import (
    conv_types,
    filter_matrix,
    shape_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum, smlad
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.kernels.requantize.pre_shifted_accumulator import (
    SmladRequantization,
    plan_smlad_requantization,
)
from microfold.kernels.shapes import IMAGE_FIELDS
from microfold.ops.convolution.conv2d import Conv2D

# Number of tiles that are computed together.
TILES = 4
# Limit of the unrolled code for the products of a position, which has 22 bytes for each channel.
MAXIMUM_CHANNELS = 128
# Filter transforms, by the tile's side.
FILTER_TRANSFORMS = {
    2: np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int64),
    4: np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 6]], np.int64),
}
# Fields with the layer's shape. Window and strides are in the code.
SHAPE = (
    *("batch", "input_height", "input_width", "input_channels"),
    *("output_height", "output_width", "output_channels", "pad_top", "pad_left"),
)
# Left shift of the sums in bits, after a multiplication by the inverse: 9 * 954437177 = 1 modulo 2^32.
SCALE_BITS = {2: 2, 4: 6}
INVERSES = {2: 1, 4: 954437177}
# Candidate last shifts of the requantisation of these sums, in order of preference.
COMMON_SHIFTS = {2: (12, 10, 16, 8), 4: (15, 14, 16, 13, 17, 12, 18)}
# Offsets of the inputs of m = 4 in the lower halves of words, which make inputs and results positive.
POSITIVE_INPUT, POSITIVE_RESULT = 128, 12800
INPUT_OFFSETS = np.pad(np.full((2, 2), POSITIVE_RESULT, np.int64), ((4, 0), (4, 0))) + POSITIVE_INPUT


def transform_filters(filters: Array, tile: int) -> Array:
    """Transform OHWI filters [OC, 3, 3, IC] to int64 [OC, tile + 2, tile + 2, IC]."""
    g = FILTER_TRANSFORMS[tile]
    return np.einsum("yi,oijc,xj->oyxc", g, filters.astype(np.int64), g)


class _Winograd(Kernel):
    """Base class of Winograd convolutions.

    A kernel transforms the inputs of 4 tiles, multiplies position by position, and transforms the sums back.

    `weights` has int16 pairs of inputs of two channels, column by column of a tile's positions. `channels`
    has records (bias, multiplier, addend, shift, factor, biases of other outputs). `supports` checks that
    transformed filters fit int16, and scaled accumulators 32 bits. `plan_smlad_requantization` proves the
    form.

    Class attributes:
        tile: side of a tile in outputs, m in the module docstring.
    """

    op = Conv2D
    features = frozenset({"dsp"})
    trades = frozenset({ResourceTradeoff.TRANSFORMED_WEIGHTS, ResourceTradeoff.TILE_SCRATCH})
    tile: ClassVar[int]
    fields = declare(
        Field("weights", "transformed weights, pairs of inputs of two channels, position by position"),
        "channels",
        *IMAGE_FIELDS,
        "output_channels",
        "pad_top",
        "pad_left",
        "input_zero_point",
        Field("sums", "offset of the sums in the scratch"),
        Field("outside", "offset of a pixel of zero points in the scratch"),
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )

    def supports(self, layer: LayerContext) -> str | None:
        x, _, _, window = conv_types(layer)
        if window.size != (3, 3) or window.strides != (1, 1) or window.dilations != (1, 1):
            return "it requires a 3x3 filter with stride 1 and dilation 1"
        if x.shape[3] % 4:
            return f"it requires a multiple of 4 input channels; got {x.shape[3]}"
        if x.shape[3] > MAXIMUM_CHANNELS:
            return f"it supports at most {MAXIMUM_CHANNELS} input channels; got {x.shape[3]}"
        reason = unsupported_integer_conv(layer, tables=True)
        if reason is not None:
            return reason
        if np.abs(transform_filters(self._filters(layer), self.tile)).max(initial=0) >= 1 << 15:
            return "its transformed filters do not fit int16"
        bounds = _requantization(layer, self.tile).bounds
        limit = 1 << (31 - SCALE_BITS[self.tile])
        largest = max(-int(bounds[0].min()), int(bounds[1].max()))
        return f"it requires accumulators below {limit}; they reach {largest}" if largest >= limit else None

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out, _ = conv_types(layer)
        tiles = self._tiles(layer)
        groups = -(-tiles // TILES)
        pairs = -(-out.shape[3] // 2)
        plan = _requantization(layer, self.tile)
        stored = tiles * 2 * pairs
        rounded = not (plan.shift and plan.form is RequantizeForm.SHORT_RELU)
        # Tiles that extend beyond the output are first stored elsewhere.
        parts = tiles - out.shape[0] * (out.shape[1] // self.tile) * (out.shape[2] // self.tile)
        return Terms(
            call=1,
            tile=tiles,
            transform=tiles * x.shape[3],
            group=groups * pairs,
            product=groups * pairs * x.shape[3],
            stored=stored,
            rounded=stored * rounded,
            part=parts * out.shape[3],
        ) + output_table.table_terms(layer)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        # First input pixel that each group of tiles reads, and the end of its last output pixel.
        y, top = np.arange(0, out.shape[1], self.tile), window.padding[0][0]
        column, left = np.arange(0, out.shape[2], self.tile), window.padding[1][0]
        first = np.maximum(y - top, 0)[:, None] * x.shape[2] + np.maximum(column - left, 0)
        last = (np.minimum(y + self.tile, out.shape[1])[:, None] - 1) * out.shape[2] + np.minimum(
            column + self.tile, out.shape[2]
        )
        begins = np.arange(0, first.size, TILES)
        images = np.arange(x.shape[0])[:, None]
        lowest = np.minimum.reduceat(first.reshape(-1), begins) + images * x.shape[1] * x.shape[2]
        behind = np.maximum.reduceat(last.reshape(-1), begins) + images * out.shape[1] * out.shape[2]
        still_needed = np.minimum.accumulate(lowest.reshape(-1)[::-1])[::-1][1:] * x.shape[3]
        written = np.maximum.accumulate(behind.reshape(-1))[:-1] * out.shape[3]
        # The last group reads everything before it writes.
        return int((written - still_needed).max()) if written.size else -x.nbytes

    def row_granularity(self, layer: LayerContext) -> int:
        return self.tile

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return self.tile

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, _ = conv_types(layer)
        assert x.quant is not None
        side, channels = self.tile + 2, x.shape[3]
        plan = _requantization(layer, self.tile)
        filters = self._filters(layer, plan)
        # The inputs are transformed column by column.
        transformed = transform_filters(filters, self.tile).swapaxes(1, 2)
        lanes = smlad.pair_lanes(transformed.reshape(out.shape[3], -1), channels)
        low, high = output_range.integer_bounds(layer.node)
        words = side**2 * (2 * channels + 2)
        sums = side**2 * 2 * TILES
        # If all tiles are complete, the offsets of a tile's outputs are compile-time constants.
        whole = out.shape[1] % self.tile == 0 and out.shape[2] % self.tile == 0
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", smlad.pack_int16(lanes)),
            "channels": Constant(
                "channels",
                self._records(plan, filters),
                record=f"mf_winograd{self.tile}_channel",
                members=(4, 1) if self.tile == 2 else (4, 1, 4),
            ),
            **{name: value for name, value in shape_parameters(layer).items() if name in SHAPE},
            "input_zero_point": x.quant.zero_point,
            "sums": words,
            "outside": words + sums,
            **output_table.table_parameters(layer.node),
        }
        clamp = (low, high) != (-128, 127)
        if clamp:
            parameters |= {"output_minimum": low, "output_maximum": high}
        spec = (
            ("tile", self.tile),
            ("positive_input", POSITIVE_INPUT),
            ("positive_result", POSITIVE_RESULT),
            ("requantize", plan.form.value),
            ("shift", plan.shift),
            ("pairs", channels // 2),
            ("pixel", out.shape[3] if whole else 0),
            ("clamp", clamp),
            ("late_loads", layer.target.has("late_loads")),
            *output_table.table_spec(layer.node),
        )
        return KernelCall(
            CFunction("conv2d/dsp_winograd.c.j2", self.name, spec, self.fields),
            parameters,
            self._scratch(layer),
        )

    def _records(self, plan: SmladRequantization, filters: Array) -> Array:
        """Return records of ``mf_winograd2_channel`` or ``mf_winograd4_channel``, int32 [OC, 5 or 9]."""
        records = plan.records.copy()
        scale = np.full_like(plan.left, SCALE_BITS[self.tile])
        if plan.shift:
            # The sums already have the required shift. The field has the correction of negative sums instead.
            scale = np.maximum(scale, plan.left)
            records[:, 3] = 1 << (plan.left - 1)
        factors = INVERSES[self.tile] << (scale - SCALE_BITS[self.tile])
        biases = records[:, :1].astype(np.int64)
        if self.tile == 4:
            # One bias for most outputs, then four for the last corner.
            biases = biases - _sums_of_offsets(filters)[:, [0, 2, 2, 3, 3], [0, 2, 3, 2, 3]]
        # All sums are modulo 2^32.
        biases = (biases << scale[:, None]).astype(np.int32)
        records[:, 0] = biases[:, 0]
        return np.concatenate([records, factors.astype(np.int32)[:, None], biases[:, 1:]], axis=1)

    def _filters(self, layer: LayerContext, plan: SmladRequantization | None = None) -> Array:
        """Return the filters, OHWI. A plan has zeros for channels whose output is constant."""
        _, weights, _, _ = conv_types(layer)
        return (filter_matrix(layer) if plan is None else plan.matrix).reshape(weights.shape)

    def _tiles(self, layer: LayerContext) -> int:
        batch, rows, columns, _ = conv_types(layer)[2].shape
        return batch * -(-rows // self.tile) * -(-columns // self.tile)

    def _scratch(self, layer: LayerContext) -> int:
        """Return the bytes of 4 tiles' transformed inputs and sums, 2 words at each position, and a pixel."""
        channels = conv_types(layer)[0].shape[3]
        return 4 * (self.tile + 2) ** 2 * (2 * channels + 2 + 2 * TILES) + channels


@register
class Conv2DWinograd4(_Winograd):
    """Winograd convolution in tiles of 4x4 outputs, with a quarter of the multiplications.

    Sums are 576 times the accumulators. A product with the inverse of 9 modulo 2^32 leaves a factor of 64.
    """

    name = "s8_conv2d__dsp_winograd_4x4"
    tile = 4


@register
class Conv2DWinograd2(_Winograd):
    """Winograd convolution in tiles of 2x2 outputs, with 4/9 of the multiplications.

    It needs less flash and scratch than `Conv2DWinograd4`. Sums are 4 times the accumulators. Inputs are
    transformed two channels at a time.
    """

    name = "s8_conv2d__dsp_winograd_2x2"
    tile = 2


def _sums_of_offsets(filters: Array) -> Array:
    """Return the part of the sums of a 4x4 tile that comes from `INPUT_OFFSETS`, int64 [OC, 4, 4].

    Args:
        filters: OHWI.
    """
    # Channels in the lower halves of words are 0 and 1 of each 4, because pairs are (0, 2) and (1, 3).
    lower = filters.reshape(*filters.shape[:3], -1, 4)[..., :2].sum(axis=(3, 4), dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(INPUT_OFFSETS, lower.shape[1:])
    return np.einsum("oij,yxij->oyx", lower, windows)


def _requantization(layer: LayerContext, tile: int) -> SmladRequantization:
    """Return the requantisation, with a common last shift if the sums need no right shift for it."""
    out = conv_types(layer)[2]
    assert out.quant is not None
    matrix = filter_matrix(layer)
    return plan_smlad_requantization(
        matrix,
        *product_sum.bias_and_bounds(layer, matrix),
        product_sum.channel_multipliers(layer),
        out.quant.zero_point,
        output_range.integer_bounds(layer.node),
        common=True,
        shifts=COMMON_SHIFTS[tile],
        lefts=(SCALE_BITS[tile], 31),
    )
