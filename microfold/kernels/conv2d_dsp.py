"""Convolution for cores with DSP instructions."""

from __future__ import annotations

import numpy as np

from microfold.kernels import accumulate, epilogue, packing
from microfold.kernels.conv2d import (
    conv_types,
    filter_matrix,
    is_pointwise,
    shape_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.kernel import Call, Constant, Function, Kernel, Parameter, Site, register
from microfold.kernels.overlap import window_overlap
from microfold.kernels.smlad_requantize import SmladRequantization, plan_smlad_requantization
from microfold.ops.accumulate import output_multipliers
from microfold.ops.conv2d import Conv2D

# Computed together.
PIXELS = 4
# Bytes of patches that are never too many; more are allowed as long as input and output are larger.
SCRATCH_LIMIT = 8192


@register
class Conv2DDsp(Kernel):
    """Widens the patches of four pixels to int16, then computes blocks of 4 pixels by 2 channels.

    The patches lie interleaved: four words with a pair of inputs of each pixel, then the next four.
    """

    name = "s8_conv2d__dsp_4x2"
    op = Conv2D
    features = frozenset({"dsp"})

    def supports(self, site: Site) -> str | None:
        return unsupported_integer_conv(site)

    def cost(self, site: Site) -> float:
        _, _, out, _ = conv_types(site)
        segments, _ = _segments(site)
        pairs, _ = _loop(site)
        channels = out.shape[3] + out.shape[3] % 2
        per_pair = 1.6 if _group(site) == PIXELS else 2.7
        pixel = channels * (per_pair * pairs + 12) + 3.2 * pairs + 30 * segments + 15
        return out.size // out.shape[3] * pixel

    def overlap(self, site: Site, index: int) -> int | None:
        x, _, out, window = conv_types(site)
        return window_overlap(x, out, window, _group(site), across_rows=True)

    def lower(self, site: Site) -> Call:
        x, _, out, window = conv_types(site)
        assert x.quant is not None
        plan = _requantization(site)
        packed = packing.choose_packing(site.options, plan.matrix, plan.bounds)
        _, segment = _segments(site)
        pairs, unroll = _loop(site)
        lanes = packing.pair_lanes(plan.matrix, segment)
        lanes = np.pad(lanes, ((0, 0), (0, pairs - lanes.shape[1]), (0, 0)))
        weights, records = packing.smlad_constants(packed, lanes, plan.records, plan.left)
        if plan.shift:
            # Instead of the last shift comes the first: sums of second dual lanes are 8 bits up already.
            records[: plan.left.size, 3] = plan.left
            if packed == "dual":
                records[1::2, 3] = 8 - records[1::2, 3]
        low, high = epilogue.integer_bounds(site.node)
        group = _group(site)
        spec = (
            ("requantize", plan.form.value),
            ("shift", plan.shift),
            ("packing", packed),
            ("pointwise", is_pointwise(window)),
            ("group", group),
            ("unroll", unroll),
            ("full_range", (low, high) == (-128, 127)),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", weights),
            "channels": Constant("channels", records, record="mf_channel"),
            "pairs": pairs,
            "segment": segment,
            "output_channels": out.shape[3],
            "output_minimum": low,
            "output_maximum": high,
        }
        scratch = 4 * group * pairs
        if is_pointwise(window):
            parameters |= {"pixels": out.size // out.shape[3]}
        else:
            parameters |= shape_parameters(site) | {"input_zero_point": x.quant.zero_point, "border": scratch}
            scratch += segment + -segment % 4
        return Call(Function("conv2d/dsp.c.j2", self.name, spec), parameters, scratch)


def _requantization(site: Site) -> SmladRequantization:
    x, weights, out, _ = conv_types(site)
    assert x.quant is not None and weights.quant is not None and out.quant is not None
    matrix = filter_matrix(site)
    return plan_smlad_requantization(
        matrix,
        *accumulate.bias_and_bounds(site, matrix),
        output_multipliers(x.quant, weights.quant, out.quant, weights.shape[0]),
        out.quant.zero_point,
        epilogue.integer_bounds(site.node),
        common=True,
    )


def _segments(site: Site) -> tuple[int, int]:
    """How many contiguous runs of inputs a patch has, and their length."""
    x, _, _, window = conv_types(site)
    return window.size[0], window.size[1] * x.shape[3]


def _loop(site: Site) -> tuple[int, int]:
    """Pairs of inputs of a patch, and how many of them an iteration of the inner loop takes.

    Pairs of zeros fill the last iteration as long as they are few.
    """
    segments, segment = _segments(site)
    pairs = segments * packing.pair_order(segment).shape[0]
    unroll = 4 if -pairs % 4 * 8 <= pairs else 2
    return pairs + -pairs % unroll, unroll


def _group(site: Site) -> int:
    """Pixels computed together: one where four do not exist, or where their patches would be too large."""
    x, _, out, _ = conv_types(site)
    scratch = 4 * PIXELS * _loop(site)[0]
    many = out.size // out.shape[3] >= PIXELS
    return PIXELS if many and scratch <= max(SCRATCH_LIMIT, x.nbytes + out.nbytes) else 1
