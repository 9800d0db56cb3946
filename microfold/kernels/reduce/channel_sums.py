"""Means and sums of integer images over their pixels: four channels at once, by words or by vectors."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.reduce.portable import QuantizedSum
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.ops.reduce.mean import Mean, Sum

# Channels per block.
LANES = 4


class _ChannelSums(QuantizedSum):
    """Base class of kernels that sum four adjacent channels at once, over the axes before the channels.

    Requantisation and its proof are as in `QuantizedSum`. The last block may overlap the one before.

    Class attributes:
        template: path of the C template.
    """

    dtypes = (DType.INT8, DType.INT16)
    template: ClassVar[str]
    fields = declare(
        "scale",
        "images",
        "image_step",
        "channels",
        Field("count", "number of addends"),
        Field("step", "step from one addend to the next"),
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = super().supports(layer)
        if reason is not None:
            return reason
        kept, reduced = self.loops(layer)
        if len(kept) > 2 or len(reduced) > 1 or kept[-1][1] != 1:
            return "it needs adjacent reduced axes before the channels"
        if kept[-1][0] < LANES:
            return f"it needs at least {LANES} channels; got {kept[-1][0]}"
        return None

    def terms(self, layer: LayerContext) -> Terms:
        kept, reduced = self.loops(layer)
        wide = layer.node.operands[0].type.dtype is DType.INT16
        general = self.finish(layer)[0] == RequantizeForm.GENERAL.value
        images = layer.node.outputs[0].type.size // kept[-1][0]
        blocks = images * -(-kept[-1][0] // LANES)
        addends = blocks * reduced[0][0]
        return Terms(
            call=1, image=images, block=blocks, general=blocks * general, addend=addends, wide=addends * wide
        )

    def lower(self, layer: LayerContext) -> KernelCall:
        kept, reduced = self.loops(layer)
        images, image_step = kept[0] if len(kept) > 1 else (1, 0)
        form, scale = self.finish(layer)
        clamp, limits = output_range.clamping(layer.node)
        parameters = scale | {
            "images": images,
            "image_step": image_step,
            "channels": kept[-1][0],
            "count": reduced[0][0],
            "step": reduced[0][1],
        }
        element = C_TYPES[layer.node.outputs[0].type.dtype]
        spec = (("type", element), ("requantize", form), ("clamp", clamp))
        return KernelCall(CFunction(self.template, self.name, spec, self.fields), parameters | limits)


class _Words(_ChannelSums):
    """Sums by words: four int8 channels, with sums of up to 256 addends in the halfwords of two words.

    SXTAB16 adds two channels in one instruction; 256 values of int8 fit 16 bits. int16 elements are loaded in
    pairs and added one by one to 32-bit sums.
    """

    features = frozenset({"dsp"})
    template = "reduce/words.c.j2"


class _Vectors(_ChannelSums):
    """Sums by vectors: a load widens four channels to int32 lanes, which are added to the sums."""

    features = frozenset({"mve"})
    template = "reduce/mve.c.j2"


@register
class MeanWords(_Words):
    """Means by words of four channels."""

    name = "mean__c_words_4"
    op = Mean


@register
class SumWords(_Words):
    """Sums by words of four channels."""

    name = "sum__c_words_4"
    op = Sum


@register
class MeanMve(_Vectors):
    """Means by vectors of four channels."""

    name = "mean__mve_4"
    op = Mean


@register
class SumMve(_Vectors):
    """Sums by vectors of four channels."""

    name = "sum__mve_4"
    op = Sum
