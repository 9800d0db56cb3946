"""Quantised PReLU in portable C."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array, DType
from microfold.kernels.call import Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.add import centred_hull, plan_short
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS, BinaryKernel
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.activations.prelu import Prelu


class _QuantizedPrelu(BinaryKernel):
    """Quantised PReLU: elements below the zero point are multiplied by alpha, and all are requantised.

    The constant `scales` has two records (bias, multiplier, addend, shift): one for non-negative inputs, and
    one for products with alpha. For each, `plan_short` chooses the shortest form that is exact for all
    possible values.
    """

    template = "elementwise/prelu.c.j2"
    fields = declare(
        Field("scales", "scales of non-negative inputs, and of products with alpha"),
        "input_zero_point",
        "alpha_zero_point",
        *output_range.LIMIT_FIELDS,
        *LOOP_FIELDS,
    )

    def _plans(self, layer: LayerContext) -> list[tuple[str, Array]]:
        """Return form and record for non-negative inputs, and for products with alpha."""
        x, alpha = (v.type.quant for v in layer.node.operands[:2])
        out = layer.node.outputs[0].type.quant
        assert x is not None and alpha is not None and out is not None and isinstance(layer.node.op, Prelu)
        low, high = centred_hull(layer, 0)
        products = [min(low, 0) * slope for slope in centred_hull(layer, 1)]
        bounds = (0, max(high, 0)), (min(0, *products), max(0, *products))
        multipliers = layer.node.op.multipliers(x, alpha)
        return [
            plan_short(layer, ends, multiplier, out.zero_point)
            for ends, multiplier in zip(bounds, multipliers, strict=True)
        ]

    def terms(self, layer: LayerContext) -> Terms:
        size = layer.node.outputs[0].type.size
        (identity, _), (slope, _) = self._plans(layer)
        return super().terms(layer) + Terms({f"identity_{identity}": size, f"slope_{slope}": size})

    def lower(self, layer: LayerContext) -> KernelCall:
        x, alpha = (v.type.quant for v in layer.node.operands[:2])
        assert x is not None and alpha is not None
        (identity, first), (slope, second) = self._plans(layer)
        clamp, limits = output_range.clamping(layer.node)
        fields: dict[str, Parameter] = {
            "scales": Constant("scales", np.concatenate([first, second]), record="mf_channel"),
            "input_zero_point": x.zero_point,
            "alpha_zero_point": alpha.zero_point,
        }
        spec = (("type", C_TYPES[self.dtype]), ("identity", identity), ("slope", slope), ("clamp", clamp))
        return self.call(layer, spec, fields | limits)


@register
class PreluInt8(_QuantizedPrelu):
    """PReLU of int8 elements and slopes; their products are far below 32 bits."""

    name = "s8_prelu__c"
    op = Prelu
    dtype = DType.INT8


@register
class PreluInt16(_QuantizedPrelu):
    """PReLU of int16 elements and slopes, with the same steps as for int8."""

    name = "s16_prelu__c"
    op = Prelu
    dtype = DType.INT16
