"""Convolution with weights of four bits, for cores with DSP instructions."""

from __future__ import annotations

from microfold.kernels.conv2d.int4 import Conv2DInt4
from microfold.kernels.conv2d.portable import conv_types, filter_matrix, is_pointwise
from microfold.kernels.kernel import Call, Function, Parameter, Site, register
from microfold.kernels.packing import int4, int4_dsp
from microfold.kernels.packing import product_sum as accumulate
from microfold.kernels.requantize import clamp as epilogue
from microfold.kernels.requantize.multiply_high import Form


@register
class Conv2DDspInt4(Conv2DInt4):
    """Widens the patches of two pixels to int16, then computes blocks of 2 pixels by 4 channels."""

    name = "s8_conv2d__dsp_int4"
    features = frozenset({"dsp"})
    code = 950
    PIXELS = 2
    reads_first = True

    def cost(self, site: Site) -> float:
        out = conv_types(site)[2]
        matrix = filter_matrix(site)
        quads = -(-matrix.shape[1] // 4)
        parts = int4_dsp.parts(matrix)
        form = int4_dsp.plan(site, matrix, accumulate.channel_multipliers(site)).form
        whole_range = epilogue.output_limits(site) == (-128, 127)
        # Outputs are finished in assembly, or in C.
        finish = 83 if whole_range and form is not Form.GENERAL and not parts else 106 if whole_range else 130
        finish += 210 * parts + (160 if form is Form.GENERAL else 0)
        pair = -(-out.shape[3] // int4.GROUP) * (26.5 * quads + finish) + 2 * 11 * quads + 135
        pixels = out.size // out.shape[3]
        return -(-pixels // self.PIXELS) * pair + self.gathering(site)

    def cycles_per_instruction(self, site: Site) -> float:
        return 1.34

    def lower(self, site: Site) -> Call:
        _, _, out, window = conv_types(site)
        matrix = filter_matrix(site)
        multipliers = accumulate.channel_multipliers(site)
        choice, constants = int4_dsp.constants(site, matrix, multipliers, together=1)
        walk, patches = self.walk(site)
        offset = patches + -patches % 4
        words = 4 * -(-matrix.shape[1] // 4)
        fields: dict[str, Parameter] = {**constants, **walk, "words": words}
        pointwise = is_pointwise(window)
        if not pointwise:
            fields |= {"widened": offset}
        spec = (
            *choice,
            ("pointwise", pointwise),
            ("dilated", window.dilations[1] > 1),
            ("channel_tail", out.shape[3] % int4.GROUP != 0),
        )
        function = Function("conv2d/int4_dsp.c.j2", self.name, spec)
        return Call(function, fields, offset + 4 * words)
