"""Transposed convolution in portable C."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import float16_weights, product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.int16_sums import plan_portable
from microfold.kernels.shapes import IMAGE_FIELDS, image_parameters
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D


class _TransposeConv2D(Kernel):
    """Base class of kernels that sum, for each output, over the taps that correspond to an input pixel.

    Weights keep the model's order, [output_channels][kernel_height][kernel_width][input_channels].

    Class attributes:
        dtypes: types of input and weights.
    """

    dtypes: ClassVar[tuple[DType, DType]]
    fields = declare(
        Field("weights", "[output_channels][kernel_height][kernel_width][input_channels]"),
        "channels",
        *IMAGE_FIELDS,
        "output_channels",
        "kernel_height",
        "kernel_width",
        "stride_height",
        "stride_width",
        Field("offset_top", "rows that are cropped"),
        "offset_left",
        "input_zero_point",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = product_sum.unsupported_constants(layer, *self.dtypes)
        if reason is None and self.records(layer) is None:
            return "a bias or a multiplier is too large"
        return reason

    def terms(self, layer: LayerContext) -> Terms:
        x, out, macs = layer.node.operands[0].type, layer.node.outputs[0].type, layer.node.macs()
        return Terms(call=1, output=out.size, tap=macs / x.shape[3], product=macs)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def matrix(self, layer: LayerContext) -> Array:
        weights = layer.array(1)
        assert weights is not None
        return weights.reshape(weights.shape[0], -1)

    def records(self, layer: LayerContext) -> tuple[Constant, tuple[tuple[str, SpecValue], ...]] | None:
        """Return the channels' records and the matching spec; None if they do not fit."""
        raise NotImplementedError

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        planned = self.records(layer)
        weights = layer.array(1)
        assert isinstance(op, TransposeConv2D) and planned is not None and weights is not None
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        clamp, limits = output_range.proved_clamping(layer)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", weights),
            "channels": planned[0],
            **image_parameters(x, out),
            "output_channels": out.shape[3],
            "kernel_height": weights.shape[1],
            "kernel_width": weights.shape[2],
            "stride_height": op.strides[0],
            "stride_width": op.strides[1],
            "offset_top": op.offset[0],
            "offset_left": op.offset[1],
        }
        if x.quant is not None:
            parameters["input_zero_point"] = x.quant.zero_point
        spec = (*planned[1], ("clamp", clamp))
        return KernelCall(
            CFunction("transpose_conv2d/portable.c.j2", self.name, spec, self.fields), parameters | limits
        )


@register
class TransposeConv2DInt8(_TransposeConv2D):
    """int8 transposed convolution with int32 sums. The zero point is subtracted from each input.

    It cannot be folded into the bias, because taps without an input are skipped. `channels` has records
    (bias, multiplier, addend, shift). `plan_without_folding` proves their form for sums of any subset of the
    products. `unsupported_bounds` proves that these sums fit int32.
    """

    name = "s8_transpose_conv2d__c"
    op = TransposeConv2D
    dtypes = (DType.INT8, DType.INT8)

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or product_sum.unsupported_bounds(layer, self.matrix(layer))

    def records(self, layer: LayerContext) -> tuple[Constant, tuple[tuple[str, SpecValue], ...]] | None:
        plan = product_sum.plan_without_folding(
            layer, self.matrix(layer), product_sum.channel_multipliers(layer)
        )
        choice = (("type", "int8_t"), ("weight_type", "int8_t"), ("accumulator", "int32_t"))
        records = Constant("channels", plan.records, record="mf_channel")
        return records, (*choice, ("requantize", plan.form.value))


@register
class TransposeConv2DInt16(_TransposeConv2D):
    """Transposed convolution of int16 activations and int8 weights.

    `plan_portable` proves the form of the records.
    """

    name = "s16_transpose_conv2d__c"
    op = TransposeConv2D
    dtypes = (DType.INT16, DType.INT8)

    def records(self, layer: LayerContext) -> tuple[Constant, tuple[tuple[str, SpecValue], ...]] | None:
        plan = plan_portable(layer, self.matrix(layer), product_sum.channel_multipliers(layer))
        if plan is None:
            return None
        choice = (("type", "int16_t"), ("weight_type", "int8_t"), *plan.choice)
        return Constant("channels", plan.records, record="mf_channel"), choice


@register
class TransposeConv2DFloat(_TransposeConv2D):
    """float32 transposed convolution, which adds products one by one in the order of the taps."""

    name = "f32_transpose_conv2d__c"
    op = TransposeConv2D
    dtypes = (DType.FLOAT32, DType.FLOAT32)
    half: ClassVar[bool] = False

    def records(self, layer: LayerContext) -> tuple[Constant, tuple[tuple[str, SpecValue], ...]] | None:
        biases = product_sum.float_biases(layer, layer.node.outputs[0].type.shape[3])
        weights = "uint16_t" if self.half else "float"
        choice = (("type", "float"), ("weight_type", weights), ("accumulator", "float"), ("requantize", ""))
        return Constant("biases", biases), choice


@register
class TransposeConv2DFloatHalf(float16_weights.HalfWeights, TransposeConv2DFloat):
    """float32 transposed convolution with float16 weights, each converted for every product.

    `HalfWeights` proves that the conversion is exact.
    """

    name = "f32_f16w_transpose_conv2d__c"
    fields = describe(
        _TransposeConv2D.fields,
        weights="float16, [output_channels][kernel_height][kernel_width][input_channels]",
    )

    def conversions(self, layer: LayerContext) -> float:
        return layer.node.macs()

    def lower(self, layer: LayerContext) -> KernelCall:
        return float16_weights.with_half_weights(super().lower(layer))
