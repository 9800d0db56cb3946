"""Products of two computed int8 matrices with DSP instructions and with Helium, column by column.

The kernel copies a column of the second operand to contiguous memory if necessary, and multiplies it by all
rows of the first operand. With zero points a and b, ``sum((x - a) * (y - b)) = sum(x * (y - b)) - a * sum(y -
b)``, so that the first operand's zero point costs one sum per column.
"""

from __future__ import annotations

from msgspec.structs import replace

from microfold.kernels.batch_matmul.portable import MatmulInt8
from microfold.kernels.call import CFunction, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import describe
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.mve import LANES
from microfold.ops.batch_matmul import BatchMatmul


class _Columns(MatmulInt8):
    """Base class of products column by column; the rows of the first operand must be contiguous.

    Requantisation and its proof are as in `MatmulInt8`. The module docstring explains how zero points are
    subtracted.

    Class attributes:
        template: path of the C template.
    """

    template: str
    fields = describe(MatmulInt8.fields, first_row="step from one row of the first operand to the next")

    def supports(self, layer: LayerContext) -> str | None:
        if reason := super().supports(layer):
            return reason
        if self.product(layer).first_strides[1] != 1:
            return "it needs contiguous rows of the first operand"
        return None

    def choices(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        raise NotImplementedError

    def unread(self, layer: LayerContext) -> tuple[str, ...]:
        """Return the fields of the portable kernel that the function does not read."""
        raise NotImplementedError

    def scratch(self, layer: LayerContext) -> int:
        raise NotImplementedError

    def lower(self, layer: LayerContext) -> KernelCall:
        call = super().lower(layer)
        unread = ("first_step", *self.unread(layer))
        kept: dict[str, Parameter] = {k: v for k, v in call.parameters.items() if k not in unread}
        common = [(key, value) for key, value in call.function.spec if key in ("requantize", "clamp")]
        function = CFunction(self.template, self.name, (*common, *self.choices(layer)), self.fields)
        return replace(call, function=function, parameters=kept, scratch=self.scratch(layer))


class _ColumnsDsp(_Columns):
    """Products of two columns at a time, centred in the scratch as pairs (0, 2) and (1, 3) of each four.

    SXTB16 widens four elements of a row to the same pairs, and SMLAD multiplies two pairs. Both columns share
    the widened elements.
    """

    features = frozenset({"dsp"})
    template = "batch_matmul/dsp.c.j2"

    def terms(self, layer: LayerContext) -> Terms:
        product, outputs = self.product(layer), layer.node.outputs[0].type.size
        columns = outputs // product.rows
        return Terms(
            call=1,
            column=columns,
            widened=columns * product.depth,
            output=outputs,
            product=outputs * product.depth,
            rest=outputs * (product.depth % 4),
        )

    def choices(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        product = self.product(layer)
        return (
            ("tail", product.depth % 4),
            ("pairs", product.columns >= 2),
            ("odd", product.columns % 2 != 0),
        )

    def unread(self, layer: LayerContext) -> tuple[str, ...]:
        # A single column needs no step to the next one.
        return () if self.product(layer).columns >= 2 else ("second_column",)

    def scratch(self, layer: LayerContext) -> int:
        product = self.product(layer)
        words = product.depth // 4 * 2 + product.depth % 4
        return 4 * words * min(product.columns, 2)


class _ColumnsMve(_Columns):
    """Sixteen products at a time, with a column that is copied to the scratch unless it is contiguous.

    VMLADAVA adds the products. VADDVA adds the elements of rows if the second operand's zero point is not 0.
    """

    features = frozenset({"mve"})
    template = "batch_matmul/mve.c.j2"

    def _gathered(self, layer: LayerContext) -> bool:
        return self.product(layer).second_strides[0] != 1

    def terms(self, layer: LayerContext) -> Terms:
        product, outputs = self.product(layer), layer.node.outputs[0].type.size
        columns, vectors = outputs // product.rows, -(-product.depth // LANES)
        gathered = columns * product.depth * self._gathered(layer)
        return Terms(
            call=1,
            column=columns,
            column_vector=columns * vectors,
            gathered=gathered,
            output=outputs,
            vector=outputs * vectors,
        )

    def choices(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        second = layer.node.operands[1].type.quant
        assert second is not None
        return (
            ("gathered", self._gathered(layer)),
            ("symmetric", second.zero_point == 0),
            ("full", self.product(layer).depth >= LANES),
            ("tail", self.product(layer).depth % LANES != 0),
        )

    def unread(self, layer: LayerContext) -> tuple[str, ...]:
        # A contiguous column has step 1.
        return () if self._gathered(layer) else ("second_step",)

    def scratch(self, layer: LayerContext) -> int:
        return self.product(layer).depth if self._gathered(layer) else 0


@register
class BatchMatmulDsp(_ColumnsDsp):
    """Batch matrix multiplication of int8 with SMLAD."""

    name = "s8_batch_matmul__dsp"
    op = BatchMatmul


@register
class BatchMatmulMve(_ColumnsMve):
    """Batch matrix multiplication of int8 with VMLADAVA."""

    name = "s8_batch_matmul__mve"
    op = BatchMatmul
