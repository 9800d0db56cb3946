"""Extrema of int8, int16 and float32, and arithmetic of float32, with Helium and with broadcasting."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op
from microfold.ir.types import DType
from microfold.kernels.call import KernelCall
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS
from microfold.kernels.elementwise.broadcast_mve import BinaryMve
from microfold.kernels.fields import declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub


class _Arithmetic(BinaryMve):
    """One C expression of two vectors of 16 bytes; the remaining elements are predicated.

    The kernel has no constants. Clips are fused for floats only.

    Class attributes:
        expression: C expression with intrinsics, of the vectors a and b.
    """

    template = "elementwise/arithmetic_mve.c.j2"
    fields = declare(
        *LOOP_FIELDS,
        *output_range.LIMIT_FIELDS,
    )
    expression: ClassVar[str]

    def supports(self, layer: LayerContext) -> str | None:
        if layer.node.epilogue and not self.dtype.is_float:
            return "it does not support an epilogue"
        return super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        lane = "f32" if self.dtype.is_float else f"s{self.dtype.itemsize * 8}"
        return self.vector_call(layer, (("expression", self.expression), ("lane", lane)), {})


def _define(operator: type[Op], dtype: DType, prefix: str, expression: str) -> None:
    attributes = {
        "__doc__": f"{operator.__name__} of {dtype.value}: ``{expression}`` for vectors a and b.",
        "name": f"{prefix}_{operator.name}__mve",
        "op": operator,
        "dtype": dtype,
        "lanes": 16 // dtype.itemsize,
        "expression": expression,
        "features": frozenset({"mve_fp" if dtype.is_float else "mve"}),
    }
    register(type(f"{operator.__name__}{dtype.name.title()}Mve", (_Arithmetic,), attributes))


_define(Add, DType.FLOAT32, "f32", "vaddq_f32(a, b)")
_define(Sub, DType.FLOAT32, "f32", "vsubq_f32(a, b)")
_define(Mul, DType.FLOAT32, "f32", "vmulq_f32(a, b)")
_define(SquaredDifference, DType.FLOAT32, "f32", "vmulq_f32(vsubq_f32(a, b), vsubq_f32(a, b))")
_define(Prelu, DType.FLOAT32, "f32", "vpselq_f32(a, vmulq_f32(a, b), vcmpgeq_n_f32(a, 0.0f))")
_define(Maximum, DType.FLOAT32, "f32", "vmaxnmq_f32(a, b)")
_define(Minimum, DType.FLOAT32, "f32", "vminnmq_f32(a, b)")
for _dtype in (DType.INT8, DType.INT16):
    _lane = f"s{_dtype.itemsize * 8}"
    _define(Maximum, _dtype, _lane, f"vmaxq_{_lane}(a, b)")
    _define(Minimum, _dtype, _lane, f"vminq_{_lane}(a, b)")
