"""The largest elements in order, in portable C."""

from __future__ import annotations

from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.reduce.top_k import TopK


@register
class TopKPortable(Kernel):
    """Top-k by insertion of each element along the last axis into the sorted list of the largest ones so far.

    The kernel has no constants and no scratch: the results themselves are the sorted list. An element is
    inserted after equal elements that precede it.
    """

    name = "top_k__c"
    op = TopK
    fields = declare(
        "rows",
        Field("depth", "elements along the axis"),
        Field("count", "number of results"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype not in C_TYPES:
            return f"it does not support {x.dtype.value}"
        return "it does not support an epilogue" if layer.node.epilogue else None

    def terms(self, layer: LayerContext) -> Terms:
        assert isinstance(layer.node.op, TopK)
        x, count = layer.node.operands[0].type, layer.node.op.count
        rows, element = x.size // x.shape[-1], f"{x.dtype.value}_element"
        return Terms({"call": 1, "row": rows, element: x.size, f"kept_{element}": x.size * count})

    def lower(self, layer: LayerContext) -> KernelCall:
        assert isinstance(layer.node.op, TopK)
        x, (_, indices) = layer.node.operands[0].type, layer.node.outputs
        spec = (("type", C_TYPES[x.dtype]), ("index", C_TYPES[indices.type.dtype]))
        return KernelCall(
            CFunction("reduce/top_k.c.j2", self.name, spec, self.fields),
            {"rows": x.size // x.shape[-1], "depth": x.shape[-1], "count": layer.node.op.count},
        )
