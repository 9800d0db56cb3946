"""Cumulative sums in portable C."""

from __future__ import annotations

import math
from typing import ClassVar

from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.add import plan_one
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.reduce.cumsum import Cumsum
from microfold.ops.reduce.quantized_cumsum import QuantizedCumsum


@register
class CumsumPortable(Kernel):
    """Cumulative sums along the axis, each computed from the previous one; integers wrap around.

    The kernel has no constants. A reversed operator starts at the end of the axis, and an exclusive one omits
    the element itself.

    Class attributes:
        choices: choices of the template.
    """

    name = "cumsum__c"
    op = Cumsum
    choices: ClassVar[tuple[tuple[str, SpecValue], ...]] = (("scaled", False),)
    fields = declare(
        "outer",
        Field("depth", "elements along the axis"),
        "inner",
    )

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def terms(self, layer: LayerContext) -> Terms:
        x = layer.node.operands[0].type
        return Terms({"call": 1, f"{x.dtype.value}_element": x.size})

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        # Each element is read before its sum is written, and only sums are read again. But in reverse order,
        # an output that starts after the input would overwrite elements that have not been read.
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
            *self.choices,
        )
        return KernelCall(
            CFunction("reduce/cumsum.c.j2", self.name, spec, self.fields), parameters | self.scaling(layer)
        )

    def scaling(self, layer: LayerContext) -> dict[str, Parameter]:
        """Return the fields for the scaling of sums; default: none."""
        return {}


@register
class CumsumInt8(CumsumPortable):
    """int8 sums in units of 2^-19, accumulated in 32 bits; each sum is scaled separately.

    The constant `scale` is one record of the general form, which has the reference's own steps.
    """

    name = "s8_cumsum__c"
    like = "cumsum__c"
    op = QuantizedCumsum
    choices = (("scaled", True),)
    fields = declare(
        *CumsumPortable.fields,
        "input_zero_point",
        "scale",
    )

    def terms(self, layer: LayerContext) -> Terms:
        size = layer.node.operands[0].type.size
        return Terms(call=1, int32_element=size) + Terms(int64_element=size)

    def scaling(self, layer: LayerContext) -> dict[str, Parameter]:
        op, quant = layer.node.op, layer.node.operands[0].type.quant
        assert isinstance(op, QuantizedCumsum) and quant is not None and op.out.quant is not None
        low, _ = op.out.dtype.range
        everything = (-(1 << 31), (1 << 31) - 1)
        plan = plan_one(0, everything, op.multiplier(quant), op.out.quant.zero_point, low)
        scale = Constant("scale", plan.records, record="mf_channel")
        return {"input_zero_point": quant.zero_point, "scale": scale}
