"""Convolution with weights of four bits, in portable C."""

from __future__ import annotations

from microfold.kernels.conv2d.portable import (
    conv_types,
    filter_matrix,
    is_pointwise,
    shape_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.kernel import CFunction, Kernel, KernelCall, LayerContext, Parameter, register
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import int4, product_sum
from microfold.ops.convolution.conv2d import Conv2D


def unsupported_int4(site: LayerContext) -> str | None:
    """The conditions that all kernels with packed weights share."""
    return unsupported_integer_conv(site) or int4.unsupported(site, filter_matrix(site))


class Conv2DInt4(Kernel):
    """Base of the kernels that read words of nibbles: patch after patch, as bytes."""

    op = Conv2D
    packed = True
    PIXELS = 1
    reads_first = False
    """Pointwise patches are read before any output of theirs is written, too."""

    def supports(self, site: LayerContext) -> str | None:
        return unsupported_int4(site)

    def overlap(self, site: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(site)
        reads_first = self.reads_first or not is_pointwise(window)
        return window_overlap(x, out, window, self.PIXELS, reads_first=reads_first, across_rows=True)

    def gathering(self, site: LayerContext) -> float:
        """Estimated instructions that copy the patches."""
        x, weights, out, window = conv_types(site)
        if is_pointwise(window):
            return 0.0
        aligned = x.shape[3] % 4 == 0
        row, byte = (70, 0.6) if aligned else (80, 6.0 if site.target.has("thumb1") else 1.0)
        rows = window.size[0] * (window.size[1] if window.dilations[1] > 1 else 1)
        return out.size // out.shape[3] * (row * rows + byte * weights.size // weights.shape[0])

    def walk(self, site: LayerContext) -> tuple[dict[str, Parameter], int]:
        """Fields of the layer that lead from patch to patch, and bytes of the patches."""
        x, _, out, window = conv_types(site)
        assert x.quant is not None
        patch = filter_matrix(site).shape[1]
        parameters: dict[str, Parameter] = {"patch": patch, "output_channels": out.shape[3]}
        if is_pointwise(window):
            return parameters | {"pixels": out.size // out.shape[3]}, 0
        parameters |= shape_parameters(site) | {"input_zero_point": x.quant.zero_point}
        return parameters, self.PIXELS * patch


@register
class Conv2DPortableInt4(Conv2DInt4):
    """One pixel by four channels: sums of two share a word, for as many inputs as they fit 16 bits."""

    name = "s8_s4w_conv2d__c"
    code = 900

    def cost(self, site: LayerContext) -> float:
        _, weights, out, _ = conv_types(site)
        depth = weights.size // weights.shape[0]
        row = int4.word_costs(site.target).row(depth, out.shape[3])
        return out.size // out.shape[3] * row + self.gathering(site)

    def lower(self, site: LayerContext) -> KernelCall:
        window = conv_types(site)[3]
        multipliers = product_sum.channel_multipliers(site)
        choice, constants = int4.word_constants(site, filter_matrix(site), multipliers)
        fields, scratch = self.walk(site)
        spec = (
            *choice,
            ("pointwise", is_pointwise(window)),
            ("dilated", window.dilations[1] > 1),
        )
        return KernelCall(CFunction("conv2d/int4.c.j2", self.name, spec), {**constants, **fields}, scratch)
