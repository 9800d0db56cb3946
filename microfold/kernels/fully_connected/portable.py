"""Fully connected layers in portable C, and the helpers that all fully connected kernels share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from microfold.ir.types import Array, DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import declare, describe
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import float16_weights, product_sum
from microfold.kernels.requantize import mul_hi, output_range, output_table
from microfold.kernels.requantize.finish import OutputStage, clamped_finish
from microfold.kernels.requantize.int16_sums import Int16Requantization, plan_portable
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.accumulate import output_multipliers
from microfold.ops.fully_connected.fully_connected import FullyConnected


def fully_connected_types(layer: LayerContext) -> tuple[TensorType, TensorType, TensorType]:
    """Return the types of input [N, K], weights [M, K] and output [N, M]."""
    x, weights = layer.node.inputs[0], layer.node.inputs[1]
    assert x is not None and weights is not None
    return x.type, weights.type, output_table.sum_type(layer.node)


def weights_zero_point(layer: LayerContext) -> int:
    """Return the zero point of the weights; 0 if they have one scale per channel."""
    quant = fully_connected_types(layer)[1].quant
    assert quant is not None
    return quant.zero_points[0] if quant.axis is None else 0


def centred_weights(layer: LayerContext) -> Array:
    """Return the constant weights minus their zero point, int16 [M, K]."""
    weights = layer.array(1)
    assert weights is not None
    return weights.astype(np.int16) - np.int16(weights_zero_point(layer))


def unsupported_integer_fully_connected(layer: LayerContext, *, tables: bool = False) -> str | None:
    """Return the reason why no int8 fully connected kernel supports the layer, or None.

    Weights may have a zero point.

    Args:
        tables: whether the kernel also supports a lookup table for outputs.
    """
    reason = product_sum.unsupported_int8_constants(layer, tables=tables)
    return reason or product_sum.unsupported_bounds(layer, centred_weights(layer))


def unit_multipliers(layer: LayerContext) -> tuple[Array, Array]:
    """Return the reference's multiplier mantissas and shifts of a quantised layer, per unit."""
    x, weights, _ = fully_connected_types(layer)
    assert isinstance(layer.node.op, FullyConnected) and x.quant is not None and weights.quant is not None
    assert layer.node.op.out.quant is not None
    return output_multipliers(x.quant, weights.quant, layer.node.op.out.quant, weights.shape[0])


def unit_records(layer: LayerContext) -> tuple[mul_hi.Requantization, Mapping[str, Parameter]]:
    """Return the requantisation of an int8 fully connected layer, and the output limits as layer fields.

    With a weight zero point z, the sums are ``bias + sum((w - z) * x)``.
    """
    multipliers = unit_multipliers(layer)
    return product_sum.output_records(layer, centred_weights(layer), multipliers)


class UnitGroups(Kernel):
    """Base class of kernels that compute up to 4 units at a time, which share the loads of inputs.

    Weights are [outputs / units][inputs][units], padded with zeros after the last unit.

    Class attributes:
        half: whether float32 weights are stored as float16.
    """

    UNITS = 4

    fields = declare(
        "weights",
        "channels",
        *MATRIX_FIELDS,
        "weights_zero_point",
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )
    half: ClassVar[bool] = False

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, output=layer.node.output.type.size, product=layer.node.macs())

    def group(self, layer: LayerContext) -> int:
        """Return the number of units that are computed together."""
        return min(fully_connected_types(layer)[2].shape[1], self.UNITS)

    def products(self, layer: LayerContext) -> int:
        """Return the number of products of all groups, including the padding of the last group."""
        x, _, out = fully_connected_types(layer)
        return x.size * -(-out.shape[1] // self.group(layer)) * self.group(layer)

    def call(self, layer: LayerContext, template: str, finish: OutputStage) -> KernelCall:
        """Return the call, in which `finish` computes outputs from sums."""
        x, _, out = fully_connected_types(layer)
        weights = layer.array(1)
        assert weights is not None
        spec = (
            *finish.spec,
            ("units", self.group(layer)),
            ("unroll", product_sum.unroll_factor(x.shape[1])),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", product_sum.interleave_channels(weights, self.group(layer))),
            **finish.parameters,
            **matrix_parameters(x, out),
        }
        units = self.group(layer)
        order = f"[outputs / {units}][inputs][{units}]"
        fields = describe(self.fields, weights=f"float16, {order}" if self.half else order)
        return KernelCall(CFunction(template, self.name, spec, fields), parameters)


@register
class FullyConnectedInt8(UnitGroups):
    """int8 fully connected layer. A zero point of weights is subtracted with one sum of inputs for each row.

    `channels` has records (bias, multiplier, addend, shift), whose form `output_records` proves. If sums may
    exceed 32 bits, and weights have no zero point, sums are computed in 64 bits and wrapped around as in the
    reference.
    """

    name = "s8_fully_connected__c_4"
    op = FullyConnected
    code = 300

    def supports(self, layer: LayerContext) -> str | None:
        reason = product_sum.unsupported_int8_constants(layer, tables=True)
        if reason is None and weights_zero_point(layer):
            return unsupported_integer_fully_connected(layer, tables=True)
        return reason

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        groups = -(-out.shape[1] // self.group(layer))
        found = Terms(call=1, group=x.shape[0] * groups, output=out.size, product=self.products(layer))
        return found + output_table.table_terms(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        zero_point = weights_zero_point(layer)
        plan, _ = unit_records(layer)
        padded = product_sum.pad_channels(plan.records, self.group(layer))
        choice = (("requantize", plan.form.value), ("weights_zero_point", zero_point != 0))
        records = Constant("channels", padded, record="mf_channel")
        finish = clamped_finish(layer, records, choice)
        call = self.call(layer, "fully_connected/portable.c.j2", finish)
        if not zero_point:
            return call
        return replace(call, parameters=dict(call.parameters) | {"weights_zero_point": zero_point})


@register
class FullyConnectedFloat(UnitGroups):
    """float32 fully connected layer in the reference's order of accumulation: all products, then the bias."""

    name = "f32_fully_connected__c_4"
    op = FullyConnected
    fields = describe(UnitGroups.fields, channels="biases")

    def supports(self, layer: LayerContext) -> str | None:
        return product_sum.unsupported_constants(layer, DType.FLOAT32, DType.FLOAT32)

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, output=layer.node.output.type.size, product=self.products(layer))

    def lower(self, layer: LayerContext) -> KernelCall:
        biases = product_sum.float_biases(layer, fully_connected_types(layer)[2].shape[1])
        records = Constant("biases", product_sum.pad_channels(biases, self.group(layer)))
        call = self.call(
            layer, "fully_connected/f32.c.j2", clamped_finish(layer, records, (("half", self.half),))
        )
        return float16_weights.with_half_weights(call) if self.half else call


@register
class FullyConnectedFloatHalf(float16_weights.HalfWeights, FullyConnectedFloat):
    """float32 fully connected layer with float16 weights, each converted for every product.

    `HalfWeights` proves that the conversion is exact.
    """

    name = "f32_f16w_fully_connected__c_4"

    def conversions(self, layer: LayerContext) -> float:
        return layer.node.macs()


@register
class FullyConnectedInt16(UnitGroups):
    """Fully connected layer of int16 activations and int8 weights.

    `plan_portable` proves the form of the records.
    """

    name = "s16_fully_connected__c_4"
    op = FullyConnected

    def supports(self, layer: LayerContext) -> str | None:
        reason = product_sum.unsupported_constants(layer, DType.INT16, DType.INT8)
        if reason is None and weights_zero_point(layer):
            return "weights must have zero point 0"
        if reason is None and self._plan(layer) is None:
            return "a bias or a multiplier is too large"
        return reason

    def _plan(self, layer: LayerContext) -> Int16Requantization | None:
        return plan_portable(layer, centred_weights(layer), unit_multipliers(layer))

    def lower(self, layer: LayerContext) -> KernelCall:
        plan = self._plan(layer)
        assert plan is not None
        padded = product_sum.pad_records(plan.records, self.group(layer))
        records = Constant("channels", padded, record="mf_channel")
        return self.call(layer, "fully_connected/s16.c.j2", clamped_finish(layer, records, plan.choice))
