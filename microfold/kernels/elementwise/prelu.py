"""Quantised PReLU in portable C."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import Constant, KernelCall, Parameter
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS, BinaryKernel
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.activations.prelu import Prelu


class _QuantizedPrelu(BinaryKernel):
    """Elements below the zero point are multiplied by alpha, all are requantised, element by element.

    `scales` are two records (0, multiplier, zero point, shift): of inputs that are not negative, and of
    products with alpha. The general form is the reference's multiplication in two roundings, for all 32-bit
    values.
    """

    template = "elementwise/prelu.c.j2"
    fields = declare(
        Field("scales", "of inputs that are not negative, and of products with alpha"),
        "input_zero_point",
        "alpha_zero_point",
        *output_range.LIMIT_FIELDS,
        *LOOP_FIELDS,
    )

    def lower(self, layer: LayerContext) -> KernelCall:
        x, alpha = (v.type.quant for v in layer.node.operands[:2])
        out = layer.node.outputs[0].type.quant
        assert x is not None and alpha is not None and out is not None and isinstance(layer.node.op, Prelu)
        identity, slope = layer.node.op.multipliers(x, alpha)
        records = np.array([[0, m.mantissa, out.zero_point, m.shift] for m in (identity, slope)], np.int32)
        clamp, limits = output_range.clamping(layer.node)
        fields: dict[str, Parameter] = {
            "scales": Constant("scales", records, record="mf_channel"),
            "input_zero_point": x.zero_point,
            "alpha_zero_point": alpha.zero_point,
        }
        return self.call(layer, (("type", C_TYPES[self.dtype]), ("clamp", clamp)), fields | limits)


@register
class PreluInt8(_QuantizedPrelu):
    """int8 elements and slopes, whose products are far from 32 bits."""

    name = "s8_prelu__c"
    op = Prelu
    dtype = DType.INT8


@register
class PreluInt16(_QuantizedPrelu):
    """int16 elements and slopes, with the steps of int8."""

    name = "s16_prelu__c"
    op = Prelu
    dtype = DType.INT16
