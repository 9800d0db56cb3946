"""Convolution for cores with DSP instructions."""

from __future__ import annotations

from microfold.kernels import packing
from microfold.kernels.conv2d import (
    channel_records,
    conv_types,
    filter_matrix,
    is_pointwise,
    shape_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.kernel import Call, Constant, Function, Kernel, Parameter, Site, register
from microfold.kernels.overlap import window_overlap
from microfold.ops.conv2d import Conv2D

SCRATCH_LIMIT = 8192


@register
class Conv2DDsp(Kernel):
    """Widens the patches of four pixels to int16, then computes blocks of 4 pixels by 2 channels.

    The patches lie interleaved: four words with a pair of inputs of each pixel, then the next four.
    """

    name = "s8_conv2d__dsp_4x2"
    op = Conv2D
    features = frozenset({"dsp"})
    PIXELS = 4

    def supports(self, site: Site) -> str | None:
        return unsupported_integer_conv(site)

    def cost(self, site: Site) -> float:
        _, _, out, _ = conv_types(site)
        segments, segment = _segments(site)
        pairs = segments * packing.pair_order(segment).shape[0]
        channels = out.shape[3] + out.shape[3] % 2
        per_pair = 1.7 if _group(site) == self.PIXELS else 2.5
        pixel = channels * (per_pair * pairs + 11) + 4 * pairs + 20 * segments + 20
        return out.size // out.shape[3] * pixel

    def overlap(self, site: Site, index: int) -> int | None:
        x, _, out, window = conv_types(site)
        return window_overlap(x, out, window, _group(site), across_rows=True)

    def lower(self, site: Site) -> Call:
        x, _, out, window = conv_types(site)
        assert x.quant is not None
        matrix = filter_matrix(site)
        plan, bounds = channel_records(site, matrix)
        _, segment = _segments(site)
        packed, weights, records = packing.smlad_constants(site, matrix, segment, plan)
        group = _group(site)
        spec = (
            ("requantize", plan.form.value),
            ("packing", packed),
            ("pointwise", is_pointwise(window)),
            ("group", group),
            ("full_range", bounds["output_minimum"] == -128 and bounds["output_maximum"] == 127),
        )
        pairs = weights.shape[1]
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", weights),
            "channels": Constant("channels", records, record="mf_channel"),
            "pairs": pairs,
            "segment": segment,
            "output_channels": out.shape[3],
        }
        scratch = 4 * group * pairs
        if is_pointwise(window):
            parameters |= {"pixels": out.size // out.shape[3]}
        else:
            parameters |= shape_parameters(site) | {"input_zero_point": x.quant.zero_point, "border": scratch}
            scratch += segment
        return Call(Function("conv2d/dsp.c.j2", self.name, spec), parameters | bounds, scratch)


def _segments(site: Site) -> tuple[int, int]:
    """How many contiguous runs of inputs a patch has, and their length."""
    x, _, _, window = conv_types(site)
    return window.size[0], window.size[1] * x.shape[3]


def _group(site: Site) -> int:
    """Pixels computed together: one where four do not exist, or where their patches would be too large."""
    x, _, out, _ = conv_types(site)
    segments, segment = _segments(site)
    scratch = 4 * Conv2DDsp.PIXELS * segments * packing.pair_order(segment).shape[0]
    many = out.size // out.shape[3] >= Conv2DDsp.PIXELS
    return Conv2DDsp.PIXELS if many and scratch <= max(SCRATCH_LIMIT, x.nbytes + out.nbytes) else 1
