"""Convolution of 3x3 filters with stride 1 by exact integer Winograd transforms, for cores with DSP.

F(m x m, 3 x 3) computes tiles of m x m outputs with (m + 2)^2 multiplications per channel instead of 9 m^2
(Lavin and Gray, https://arxiv.org/abs/1509.09308). Over the integers it is exact: with scaled filter
transforms all coefficients are integers, all sums are taken modulo 2^32, and the result is a multiple of the
accumulator:

- m = 2: filters (2 G) g (2 G)^T; 4 times.
- m = 4: rows of G times 24, the last one times 6, which the output transform makes up for; 576 = 64 * 9
  times. Multiplication by the inverse of 9 modulo 2^32 leaves 64 times the accumulator.

What must fit int16 are the transformed inputs and filters. Inputs are taken as q + 128 in [0, 255]; the
transform of m = 4 then stays within [-12750, 17340], that of m = 2 within [-510, 1020]. Filters are checked
one by one. Accumulators must be below 2^29 (m = 2) or 2^25 (m = 4) in magnitude.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.types import Array
from microfold.kernels import accumulate, epilogue, packing
from microfold.kernels.conv2d import (
    conv_types,
    filter_matrix,
    shape_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.kernel import Call, Constant, Function, Kernel, Parameter, Site, register
from microfold.kernels.smlad_requantize import SmladRequantization, plan_smlad_requantization
from microfold.ops.conv2d import Conv2D

# Tiles computed together.
TILES = 4
# All products of a position are written out: 22 bytes of code for each channel.
MAXIMUM_CHANNELS = 128
# Scratch that is never too much, and how much more there may be, in sizes of input and output.
SCRATCH_LIMIT = 8192
SCRATCH_RATIO = 3
# Filter transforms, by the tile's side.
FILTER_TRANSFORMS = {
    2: np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int64),
    4: np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 6]], np.int64),
}
# Fields of the layer that tell its shape; window and steps are in the code.
SHAPE = (
    *("batch", "input_height", "input_width", "input_channels"),
    *("output_height", "output_width", "output_channels", "pad_top", "pad_left"),
)
# Sums come out shifted that far to the left, once the factor 9 is gone.
SCALE_BITS = {2: 2, 4: 6}


def transform_filters(filters: Array, tile: int) -> Array:
    """OHWI filters [OC, 3, 3, IC] to int64 [OC, tile + 2, tile + 2, IC]."""
    g = FILTER_TRANSFORMS[tile]
    return np.einsum("yi,oijc,xj->oyxc", g, filters.astype(np.int64), g)


class _Winograd(Kernel):
    op = Conv2D
    features = frozenset({"dsp"})
    tile: ClassVar[int]

    def supports(self, site: Site) -> str | None:
        x, _, out, window = conv_types(site)
        if window.size != (3, 3) or window.strides != (1, 1) or window.dilations != (1, 1):
            return "it needs a 3x3 filter with stride 1 and dilation 1"
        if x.shape[3] % 4:
            return f"it needs a multiple of 4 input channels; there are {x.shape[3]}"
        if x.shape[3] > MAXIMUM_CHANNELS:
            return f"its loop would be too long for {x.shape[3]} input channels; at most {MAXIMUM_CHANNELS}"
        reason = unsupported_integer_conv(site)
        if reason is not None:
            return reason
        if site.options.optimize != "speed":
            ratio = 2 * (self.tile + 2) ** 2 / 9
            return f"its weights need {ratio:.1f} times the flash; optimize = speed allows it"
        if np.abs(transform_filters(self._filters(site), self.tile)).max(initial=0) >= 1 << 15:
            return "its transformed filters do not fit int16"
        bounds = _requantization(site, self.tile).bounds
        limit = 1 << (31 - SCALE_BITS[self.tile])
        largest = max(-int(bounds[0].min()), int(bounds[1].max()))
        if largest >= limit:
            return f"it needs accumulators below {limit}; they reach {largest}"
        allowed = max(SCRATCH_LIMIT, SCRATCH_RATIO * (x.nbytes + out.nbytes))
        scratch = self._scratch(site)
        return (
            f"it needs {scratch} bytes of scratch; at most {allowed} are allowed"
            if scratch > allowed
            else None
        )

    def cost(self, site: Site) -> float:
        x, _, out, _ = conv_types(site)
        side, channels = self.tile + 2, x.shape[3]
        groups = -(-self._tiles(site) // TILES)
        pairs = -(-out.shape[3] // 2)
        find = 11 * side**2
        transform = channels / 4 * side * (18 * side + (24 if self.tile == 2 else 52))
        multiply = side**2 * (5.5 * channels + 4)
        store = (side + self.tile) * (11 if self.tile == 2 else 26) + 14 * self.tile**2
        return groups * (TILES * (find + transform) + pairs * (multiply + 2 * TILES * store))

    def overlap(self, site: Site, index: int) -> int | None:
        x, _, out, window = conv_types(site)
        # First input byte that each group of tiles reads, and the byte behind its last output.
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

    def lower(self, site: Site) -> Call:
        x, _, out, _ = conv_types(site)
        assert x.quant is not None
        side, channels = self.tile + 2, x.shape[3]
        plan = _requantization(site, self.tile)
        filters = self._filters(site, plan)
        lanes = packing.pair_lanes(transform_filters(filters, self.tile).reshape(out.shape[3], -1), channels)
        records = plan.records.copy()
        if plan.shift:
            # Instead of the last shift comes that of the sums, which come out multiplied.
            records[:, 3] = np.abs(SCALE_BITS[self.tile] - plan.left)
        # The transform takes inputs as q + 128; modulo 2^32, as all sums are.
        bias = records[:, 0] - 128 * filters.reshape(out.shape[3], -1).astype(np.int64).sum(axis=1)
        records[:, 0] = (bias << SCALE_BITS[self.tile]).astype(np.int32)
        low, high = epilogue.integer_bounds(site.node)
        words = side**2 * (2 * channels + 2)
        sums = side**2 * 2 * TILES
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", packing.pack_int16(lanes)),
            "channels": Constant("channels", records, record="mf_channel"),
            **{name: value for name, value in shape_parameters(site).items() if name in SHAPE},
            "input_zero_point": x.quant.zero_point,
            "sums": words,
            "outside": words + sums,
            "output_minimum": low,
            "output_maximum": high,
        }
        spec = (
            ("tile", self.tile),
            ("requantize", plan.form.value),
            ("shift", plan.shift),
            ("pairs", channels // 2),
            ("full_range", (low, high) == (-128, 127)),
        )
        return Call(Function("conv2d/dsp_winograd.c.j2", self.name, spec), parameters, self._scratch(site))

    def _filters(self, site: Site, plan: SmladRequantization | None = None) -> Array:
        """OHWI; of a plan: zero for channels whose output is constant."""
        _, weights, _, _ = conv_types(site)
        return (filter_matrix(site) if plan is None else plan.matrix).reshape(weights.shape)

    def _tiles(self, site: Site) -> int:
        batch, rows, columns, _ = conv_types(site)[2].shape
        return batch * -(-rows // self.tile) * -(-columns // self.tile)

    def _scratch(self, site: Site) -> int:
        """Bytes: transformed inputs and sums of four tiles, with two words at each position, and a pixel."""
        channels = conv_types(site)[0].shape[3]
        return 4 * (self.tile + 2) ** 2 * (2 * channels + 2 + 2 * TILES) + channels


@register
class Conv2DWinograd4(_Winograd):
    """Tiles of 4x4 outputs: a quarter of the multiplications."""

    name = "s8_conv2d__dsp_winograd_4x4"
    tile = 4


@register
class Conv2DWinograd2(_Winograd):
    """Tiles of 2x2 outputs: 4/9 of the multiplications, in less flash and scratch."""

    name = "s8_conv2d__dsp_winograd_2x2"
    tile = 2


def _requantization(site: Site, tile: int) -> SmladRequantization:
    """With a common last shift, if the sums need not be shifted further to the left for it than they are."""
    out = conv_types(site)[2]
    assert out.quant is not None
    matrix = filter_matrix(site)
    plans = (
        plan_smlad_requantization(
            matrix,
            *accumulate.bias_and_bounds(site, matrix),
            accumulate.channel_multipliers(site),
            out.quant.zero_point,
            epilogue.integer_bounds(site.node),
            common=common,
        )
        for common in (True, False)
    )
    return next(plan for plan in plans if plan.shift == 0 or tile == 2 or plan.left.max() <= SCALE_BITS[tile])
