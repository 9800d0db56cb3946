"""Cumulative sums in portable C."""

from __future__ import annotations

import math

from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.reduce.cumsum import Cumsum


@register
class CumsumPortable(Kernel):
    """Along the axis, each sum from the one before it; integers wrap round.

    No constants. Sums begin at the axis's end where the operator is reversed, and leave out the element
    itself where it is exclusive.
    """

    name = "cumsum__c"
    op = Cumsum
    fields = declare(
        "outer",
        Field("depth", "along the axis"),
        "inner",
    )

    def supports(self, layer: LayerContext) -> str | None:
        return "it fuses nothing" if layer.node.epilogue else None

    def terms(self, layer: LayerContext) -> Terms:
        x = layer.node.operands[0].type
        return Terms({"call": 1, f"{x.dtype.value}_element": x.size})

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        # An element is read before its sum is written, and only sums are read again; in reverse order,
        # an output that starts behind the input would overwrite what is not read yet.
        return None

    def in_place(self, layer: LayerContext, index: int) -> bool:
        return True

    def lower(self, layer: LayerContext) -> KernelCall:
        x = layer.node.operands[0].type
        op = layer.node.op
        assert isinstance(op, Cumsum)
        parameters: dict[str, Parameter] = {
            "outer": math.prod(x.shape[: op.axis]),
            "depth": x.shape[op.axis],
            "inner": math.prod(x.shape[op.axis + 1 :]),
        }
        spec = (
            ("type", C_TYPES[x.dtype]),
            ("wraps", f"u{x.dtype.value}_t" if x.dtype.is_integer else ""),
            ("exclusive", op.exclusive),
            ("reverse", op.reverse),
        )
        return KernelCall(CFunction("reduce/cumsum.c.j2", self.name, spec, self.fields), parameters)
