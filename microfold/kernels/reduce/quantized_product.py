"""Products of int8 and int16 over any axes, in portable C."""

from __future__ import annotations

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.product_sum import wide_record
from microfold.kernels.reduce.portable import Reduction
from microfold.kernels.requantize import output_range
from microfold.ops.reduce.quantized_reduce_prod import QuantizedReduceProd


@register
class QuantizedProduct(Reduction):
    """Product reduction with the loops of `Reduction`, rescaled after each factor by the reference's steps.

    The constant `scale` is one record of the form ``wide``, see `int16_sums`. A result is clamped before the
    zero point is added, so that the sum fits 32 bits.
    """

    name = "quantized_reduce_prod__c"
    like = "s64_reduce_prod__c"
    op = QuantizedReduceProd
    dtypes = (DType.INT8, DType.INT16)
    fields = declare(
        *Reduction.fields[:2],
        "scale",
        "input_zero_point",
        "output_zero_point",
        Field("lowest", "smallest result, minus the output's zero point"),
        "highest",
    )

    def terms(self, layer: LayerContext) -> Terms:
        # A result with n factors is rescaled n + 1 times.
        outputs = layer.node.outputs[0].type.size
        return Terms(call=1, output=outputs, int64_element=layer.node.operands[0].type.size + outputs)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, op = layer.node.operands[0].type, layer.node.op
        assert isinstance(op, QuantizedReduceProd) and x.quant is not None and op.out.quant is not None
        zero_point = op.out.quant.zero_point
        low, high = output_range.integer_bounds(layer.node)
        parameters: dict[str, Parameter] = {
            **self.loop_constants(layer),
            "scale": Constant("scale", wide_record(0, op.multiplier(x)), record="mf_channel"),
            "input_zero_point": x.quant.zero_point,
            "output_zero_point": zero_point,
            "lowest": low - zero_point,
            "highest": high - zero_point,
        }
        spec = (("type", C_TYPES[x.dtype]),)
        return KernelCall(
            CFunction("reduce/quantized_product.c.j2", self.name, spec, self.fields), parameters
        )
