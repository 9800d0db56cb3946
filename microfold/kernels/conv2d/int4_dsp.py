"""int8 convolution with 4-bit weights for cores with the DSP extension."""

from __future__ import annotations

from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.conv2d.int4 import Conv2DInt4
from microfold.kernels.conv2d.portable import PATCH_FIELDS, conv_types, filter_matrix, is_pointwise
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import int4, int4_dsp, product_sum, smlad
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.mul_hi import RequantizeForm


@register
class Conv2DDspInt4(Conv2DInt4):
    """SMLAD convolution that widens the patches of 2 pixels to int16, then computes 2 pixels by 4 channels.

    `packing.int4_dsp` defines the layout, and proves how four sums are extracted from one.
    `smlad.plan_requantization` proves the requantisation.
    """

    name = "s8_s4w_conv2d__dsp"
    features = frozenset({"dsp"})
    code = 950
    PIXELS = 2
    reads_first = True
    fields = declare(
        Field("weights", "[output_channels / 4][words / 2], pairs of inputs (0, 2), (1, 3) of each four"),
        "channels",
        Field("words", "words of two widened patches"),
        *PATCH_FIELDS,
        "input_zero_point",
        Field("widened", "offset of the widened patches in the scratch"),
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        out = conv_types(layer)[2]
        matrix = filter_matrix(layer)
        steps = -(-matrix.shape[1] // 4)
        parts = int4_dsp.parts(matrix)
        multipliers = product_sum.channel_multipliers(layer)
        form = smlad.plan_requantization(layer, matrix, multipliers, common=False).form
        clamp = output_range.output_limits(layer) != (-128, 127)
        general = form is RequantizeForm.GENERAL
        # The requantisation is in assembly or in C.
        kind = "clamped_block" if clamp else "c_block" if general or parts else "block"
        block = Terms({kind: 1, "step": steps, "part": parts, "general": general})
        pairs = -(-(out.size // out.shape[3]) // self.PIXELS)
        pair = Terms(pair=1, pair_step=steps) + -(-out.shape[3] // int4.GROUP) * block
        return Terms(call=1) + pairs * pair + self.gathering(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        _, _, out, window = conv_types(layer)
        matrix = filter_matrix(layer)
        multipliers = product_sum.channel_multipliers(layer)
        choice, constants = int4_dsp.constants(layer, matrix, multipliers, together=1)
        traversal, patches = self.traversal(layer)
        offset = patches + -patches % 4
        words = 4 * -(-matrix.shape[1] // 4)
        fields: dict[str, Parameter] = {**constants, **traversal, "words": words}
        pointwise = is_pointwise(window)
        if not pointwise:
            fields |= {"widened": offset}
        spec = (
            *choice,
            ("pointwise", pointwise),
            ("dilated", window.dilations[1] > 1),
            ("channel_tail", out.shape[3] % int4.GROUP != 0),
        )
        function = CFunction("conv2d/int4_dsp.c.j2", self.name, spec, self.fields)
        return KernelCall(function, fields, offset + 4 * words)
