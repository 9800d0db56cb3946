"""int8 convolution with 4-bit weights, in portable C."""

from __future__ import annotations

from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.conv2d.portable import (
    PATCH_FIELDS,
    conv_types,
    filter_matrix,
    is_pointwise,
    patch_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import declare
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import int4, product_sum
from microfold.kernels.requantize import output_range
from microfold.ops.convolution.conv2d import Conv2D


def unsupported_int4(layer: LayerContext) -> str | None:
    """Return the reason why no convolution kernel with 4-bit weights supports the layer, or None."""
    return unsupported_integer_conv(layer) or int4.unsupported(filter_matrix(layer))


class Conv2DInt4(Kernel):
    """Base class of kernels that multiply patches of bytes by words of 4-bit weights.

    `unsupported_int4` checks that the weights fit 4 bits, and that sums fit int32.

    Class attributes:
        PIXELS: number of pixels that are computed together.
    """

    op = Conv2D
    trades = frozenset({ResourceTradeoff.FOUR_BITS})
    PIXELS = 1
    reads_first = False
    """Whether even pointwise patches are completely read before any of their outputs is written."""

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_int4(layer)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        reads_first = self.reads_first or not is_pointwise(window)
        return window_overlap(x, out, window, self.PIXELS, reads_first=reads_first, across_rows=True)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def gathering(self, layer: LayerContext) -> Terms:
        """Count the code parts that copy patches."""
        x, weights, out, window = conv_types(layer)
        if is_pointwise(window):
            return Terms()
        kind = "aligned" if x.shape[3] % 4 == 0 else "ragged"
        pixels = out.size // out.shape[3]
        rows = window.size[0] * (window.size[1] if window.dilations[1] > 1 else 1)
        patch = weights.size // weights.shape[0]
        return Terms({f"{kind}_segment": pixels * rows, f"{kind}_byte": pixels * patch})

    def traversal(self, layer: LayerContext) -> tuple[dict[str, Parameter], int]:
        """Return the layer fields with which a kernel traverses the patches, and the bytes of the patches."""
        x, _, out, window = conv_types(layer)
        assert x.quant is not None
        patch = filter_matrix(layer).shape[1]
        parameters: dict[str, Parameter] = {"patch": patch, "output_channels": out.shape[3]}
        traversal, scratch = patch_parameters(layer, self.PIXELS * patch)
        if not is_pointwise(window):
            traversal |= {"input_zero_point": x.quant.zero_point}
        return parameters | traversal, scratch


@register
class Conv2DPortableInt4(Conv2DInt4):
    """Convolution of 1 pixel by 4 channels. The sums of two channels share a word while they fit 16 bits.

    `packing.int4.pack_words` defines the layout. `word_constants` has the records and their proof.
    `unsupported_int4` checks that weights fit 4 bits.
    """

    name = "s8_s4w_conv2d__c"
    code = 900
    fields = declare(
        *int4.WORD_FIELDS,
        *PATCH_FIELDS,
        "input_zero_point",
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        _, weights, out, _ = conv_types(layer)
        depth = weights.size // weights.shape[0]
        row = int4.row_terms(depth, out.shape[3])
        return Terms(call=1) + out.size // out.shape[3] * row + self.gathering(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        window = conv_types(layer)[3]
        multipliers = product_sum.channel_multipliers(layer)
        choice, constants = int4.word_constants(layer, filter_matrix(layer), multipliers)
        fields, scratch = self.traversal(layer)
        spec = (
            *choice,
            ("pointwise", is_pointwise(window)),
            ("dilated", window.dilations[1] > 1),
        )
        return KernelCall(
            CFunction("conv2d/int4.c.j2", self.name, spec, self.fields), {**constants, **fields}, scratch
        )
