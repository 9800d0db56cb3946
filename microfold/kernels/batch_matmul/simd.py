"""Products of two computed int8 matrices with DSP instructions and with Helium, column after column.

A column of the second operand is brought into one piece, and multiplied with all rows of the first. With
zero points a and b, ``sum((x - a) * (y - b)) = sum(x * (y - b)) - a * sum(y - b)``: one sum per column.
"""

from __future__ import annotations

from dataclasses import replace

from microfold.kernels.batch_matmul.portable import MatmulInt8
from microfold.kernels.kernel import CFunction, KernelCall, LayerContext, Parameter, SpecValue, register
from microfold.kernels.packing.mve import LANES
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.fully_connected.fully_connected import FullyConnected

_UNREAD = ("first_step",)


class _Columns(MatmulInt8):
    template: str

    def supports(self, site: LayerContext) -> str | None:
        if reason := super().supports(site):
            return reason
        if self.product(site).first_strides[1] != 1:
            return "it needs the rows of the first operand in one piece"
        return None

    def choices(self, site: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        raise NotImplementedError

    def scratch(self, site: LayerContext) -> int:
        raise NotImplementedError

    def lower(self, site: LayerContext) -> KernelCall:
        call = super().lower(site)
        kept: dict[str, Parameter] = {k: v for k, v in call.parameters.items() if k not in _UNREAD}
        common = [(key, value) for key, value in call.function.spec if key in ("requantize", "clamped")]
        function = CFunction(self.template, self.name, (*common, *self.choices(site)))
        return replace(call, function=function, parameters=kept, scratch=self.scratch(site))


class _ColumnsDsp(_Columns):
    """Two columns at a time, as pairs of int16."""

    features = frozenset({"dsp"})
    template = "batch_matmul/dsp.c.j2"

    def cost(self, site: LayerContext) -> float:
        product = self.product(site)
        matrices = site.node.outputs[0].type.size // (product.rows * product.columns)
        output = 2.4 * product.depth + 5 * (product.depth % 4) + 20
        column = 6.0 * product.depth + 40
        return matrices * product.columns * (product.rows * output + column) + 60

    def choices(self, site: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        product = self.product(site)
        return (
            ("tail", product.depth % 4),
            ("pairs", product.columns >= 2),
            ("odd", product.columns % 2 != 0),
        )

    def scratch(self, site: LayerContext) -> int:
        product = self.product(site)
        words = product.depth // 4 * 2 + product.depth % 4
        return 4 * words * min(product.columns, 2)


class _ColumnsMve(_Columns):
    """Sixteen products at a time."""

    features = frozenset({"mve"})
    template = "batch_matmul/mve.c.j2"

    def _gathered(self, site: LayerContext) -> bool:
        return self.product(site).second_strides[0] != 1

    def cost(self, site: LayerContext) -> float:
        product = self.product(site)
        matrices = site.node.outputs[0].type.size // (product.rows * product.columns)
        vectors = -(-product.depth // LANES)
        column = 6 * vectors + 3.6 * product.depth * self._gathered(site) + 20
        return matrices * product.columns * (product.rows * (7 * vectors + 22) + column) + 60

    def choices(self, site: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        second = site.node.operands[1].type.quant
        assert second is not None
        return (
            ("gathered", self._gathered(site)),
            ("symmetric", second.zero_point == 0),
            ("full", self.product(site).depth >= LANES),
            ("tail", self.product(site).depth % LANES != 0),
        )

    def scratch(self, site: LayerContext) -> int:
        return self.product(site).depth if self._gathered(site) else 0


@register
class BatchMatmulDsp(_ColumnsDsp):
    name = "s8_batch_matmul__dsp"
    op = BatchMatmul


@register
class FullyConnectedMatmulDsp(_ColumnsDsp):
    name = "s8_fully_connected__dsp_matmul"
    op = FullyConnected


@register
class BatchMatmulMve(_ColumnsMve):
    name = "s8_batch_matmul__mve"
    op = BatchMatmul


@register
class FullyConnectedMatmulMve(_ColumnsMve):
    name = "s8_fully_connected__mve_matmul"
    op = FullyConnected
