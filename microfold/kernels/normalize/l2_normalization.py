"""Division by the Euclidean norm, in portable C."""

from __future__ import annotations

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.normalize.row import RowKernel
from microfold.kernels.requantize import output_range
from microfold.ops.normalize.l2_normalization import EPSILON, L2Normalization


@register
class L2NormalizationInt8(RowKernel):
    """L2 normalisation by the reference's inverse square root for each row, and its product for each element.

    The kernel has no constants. `maximum_depth` keeps the sum of squares in 32 bits.
    """

    name = "s8_l2_normalization__c"
    op = L2Normalization
    dtypes = (DType.INT8, DType.INT8)
    # In longer rows, the 32-bit sum of squares, each at most 255^2, might overflow.
    maximum_depth = 33025
    fields = declare(
        "rows",
        "depth",
        "input_zero_point",
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        x = layer.node.operands[0].type
        return Terms(call=1, row=x.size // x.shape[-1], element=x.size)

    def lower(self, layer: LayerContext) -> KernelCall:
        op, quant = layer.node.op, layer.node.operands[0].type.quant
        assert isinstance(op, L2Normalization) and quant is not None
        low, high = output_range.integer_bounds(layer.node)
        parameters = self.shape(layer) | {
            "input_zero_point": quant.zero_point,
            "output_minimum": low,
            "output_maximum": high,
        }
        return KernelCall(
            CFunction("normalize/l2_normalization.c.j2", self.name, (("legacy", op.legacy),), self.fields),
            parameters,
        )


@register
class L2NormalizationFloat(RowKernel):
    """L2 normalisation by a sum of squares in the order of the row, its root, and a division per element."""

    name = "f32_l2_normalization__c"
    op = L2Normalization
    dtypes = (DType.FLOAT32, DType.FLOAT32)
    fields = declare(
        "rows",
        "depth",
        Field("epsilon", "lower bound of the norm"),
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        x = layer.node.operands[0].type
        return Terms(call=1, row=x.size // x.shape[-1], element=x.size)

    def lower(self, layer: LayerContext) -> KernelCall:
        low, high = output_range.float_bounds(layer.node)
        parameters = self.shape(layer) | {
            "epsilon": EPSILON,
            "output_minimum": low,
            "output_maximum": high,
        }
        return KernelCall(
            CFunction("normalize/l2_normalization_f32.c.j2", self.name, (), self.fields),
            parameters,
        )
