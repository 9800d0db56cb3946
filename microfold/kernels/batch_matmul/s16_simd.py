"""Products of two computed int16 matrices with DSP instructions and with Helium, one column at a time.

The kernel copies a column of the second operand to contiguous memory if necessary. It multiplies the column
by all rows of the first operand, with long multiply-accumulate instructions that add to 64 bits.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from microfold.kernels.batch_matmul.portable import MatmulInt16
from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import describe
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.ops.batch_matmul import BatchMatmul

# Products per iteration of the inner loop.
_UNROLL = 8
# Fields of the portable kernel that these kernels do not read.
_UNREAD = ("first_step", "first_zero_point", "second_zero_point")


class _Columns(MatmulInt16):
    """Base class of kernels that multiply a contiguous column, or a copy of it in the scratch, by all rows.

    An iteration computes eight products, with instructions that add two or eight of them to 64 bits. Zero
    points are 0, and requantisation is that of `MatmulInt16`.

    Class attributes:
        core: instruction set that the template uses.
    """

    op = BatchMatmul
    core: ClassVar[str]
    fields = describe(MatmulInt16.fields, first_row="step from one row of the first operand to the next")

    def supports(self, layer: LayerContext) -> str | None:
        if reason := super().supports(layer):
            return reason
        if self.product(layer).first_strides[1] != 1:
            return "it needs contiguous rows of the first operand"
        if any(v.type.quant is None or v.type.quant.zero_point for v in layer.node.operands[:2]):
            return "it needs zero points of 0"
        return None

    def _gathered(self, layer: LayerContext) -> bool:
        return self.product(layer).second_strides[0] != 1

    def terms(self, layer: LayerContext) -> Terms:
        product, outputs = self.product(layer), layer.node.outputs[0].type.size
        columns = outputs // product.rows
        # Parts of a dot product: whole iterations, and the remaining products one by one.
        eights, rest = divmod(product.depth, _UNROLL)
        gathered = columns * product.depth * self._gathered(layer)
        return Terms(
            call=1,
            column=columns,
            gathered=gathered,
            output=outputs,
            eight=outputs * eights,
            rest=outputs * rest,
        )

    def lower(self, layer: LayerContext) -> KernelCall:
        call = super().lower(layer)
        depth, gathered = self.product(layer).depth, self._gathered(layer)
        unread = _UNREAD if gathered else (*_UNREAD, "second_step")
        kept: dict[str, Parameter] = {k: v for k, v in call.parameters.items() if k not in unread}
        spec = (
            ("core", self.core),
            ("tail", depth % _UNROLL != 0),
            ("gathered", gathered),
            *((key, value) for key, value in call.function.spec if key == "clamp"),
        )
        function = CFunction("batch_matmul/s16_simd.c.j2", self.name, spec, self.fields)
        scratch = depth * self.dtype.itemsize if gathered else 0
        return replace(call, function=function, parameters=kept, scratch=scratch)


@register
class BatchMatmulInt16Dsp(_Columns):
    """int16 products with SMLALD: two products are added to a 64-bit sum."""

    name = "s16_batch_matmul__dsp"
    features = frozenset({"dsp"})
    core = "dsp"


@register
class BatchMatmulInt16Mve(_Columns):
    """int16 products with VMLALDAVA: eight products are added to a 64-bit sum; the tail is predicated."""

    name = "s16_batch_matmul__mve"
    features = frozenset({"mve"})
    core = "mve"
