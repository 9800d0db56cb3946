"""Division by the Euclidean norm, in portable C."""

from __future__ import annotations

from microfold.ir.types import DType
from microfold.kernels import epilogue
from microfold.kernels.kernel import Call, Function, Kernel, Parameter, Site, register
from microfold.ops.l2_normalization import EPSILON, L2Normalization

# Beyond, the 32-bit sum of squares, each at most 255^2, might overflow.
_MAXIMUM_DEPTH = 33025


class _L2Normalization(Kernel):
    def supports(self, site: Site) -> str | None:
        x = site.node.operands[0].type
        expected = DType.INT8 if self.name.startswith("s8") else DType.FLOAT32
        if x.dtype is not expected:
            return f"it computes {expected.value}; the input is {x.dtype.value}"
        return epilogue.unsupported_epilogue(site.node)

    def overlap(self, site: Site, index: int) -> int | None:
        # All of a row is read before its first element is written; then element by element.
        return 0

    def shape(self, site: Site) -> dict[str, Parameter]:
        x = site.node.operands[0].type
        return {"rows": x.size // max(x.shape[-1], 1), "depth": x.shape[-1]}


@register
class L2NormalizationInt8(_L2Normalization):
    """The reference's inverse square root, once for each row."""

    name = "s8_l2_normalization__c"
    op = L2Normalization

    def supports(self, site: Site) -> str | None:
        depth = site.node.operands[0].type.shape[-1]
        if depth > _MAXIMUM_DEPTH:
            return f"it needs at most {_MAXIMUM_DEPTH} elements in a row; there are {depth}"
        return super().supports(site)

    def cost(self, site: Site) -> float:
        x = site.node.operands[0].type
        return x.size * 30.0 + x.size // max(x.shape[-1], 1) * 250.0

    def lower(self, site: Site) -> Call:
        quant = site.node.operands[0].type.quant
        assert quant is not None
        low, high = epilogue.integer_bounds(site.node)
        parameters = self.shape(site) | {
            "input_zero_point": quant.zero_point,
            "output_minimum": low,
            "output_maximum": high,
        }
        return Call(Function("l2_normalization/c.c.j2", self.name), parameters)


@register
class L2NormalizationFloat(_L2Normalization):
    name = "f32_l2_normalization__c"
    op = L2Normalization

    def cost(self, site: Site) -> float:
        return site.node.operands[0].type.size * 25.0

    def lower(self, site: Site) -> Call:
        low, high = epilogue.float_bounds(site.node)
        parameters = self.shape(site) | {
            "epsilon": EPSILON,
            "output_minimum": low,
            "output_maximum": high,
        }
        return Call(Function("l2_normalization/f32.c.j2", self.name), parameters)
