"""Extrema of int8, int16 and float32, and arithmetic of float32, with Helium and with broadcasting."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op
from microfold.kernels.call import KernelCall
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS
from microfold.kernels.elementwise.broadcast_mve import BinaryMve
from microfold.kernels.fields import declare
from microfold.kernels.kernel import define
from microfold.kernels.layer import LayerContext
from microfold.kernels.names import activation_type
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


def _define(name: str, operator: type[Op], expression: str) -> None:
    dtype = activation_type(name)
    define(
        _Arithmetic,
        name,
        operator,
        f"{operator.__name__} of {dtype.value}: ``{expression}`` for vectors a and b.",
        dtype=dtype,
        lanes=16 // dtype.itemsize,
        expression=expression,
        features=frozenset({"mve_fp" if dtype.is_float else "mve"}),
    )


_define("f32_add__mve", Add, "vaddq_f32(a, b)")
_define("f32_sub__mve", Sub, "vsubq_f32(a, b)")
_define("f32_mul__mve", Mul, "vmulq_f32(a, b)")
_define("f32_squared_difference__mve", SquaredDifference, "vmulq_f32(vsubq_f32(a, b), vsubq_f32(a, b))")
_define("f32_prelu__mve", Prelu, "vpselq_f32(a, vmulq_f32(a, b), vcmpgeq_n_f32(a, 0.0f))")
_define("f32_maximum__mve", Maximum, "vmaxnmq_f32(a, b)")
_define("f32_minimum__mve", Minimum, "vminnmq_f32(a, b)")
_define("s8_maximum__mve", Maximum, "vmaxq_s8(a, b)")
_define("s8_minimum__mve", Minimum, "vminq_s8(a, b)")
_define("s16_maximum__mve", Maximum, "vmaxq_s16(a, b)")
_define("s16_minimum__mve", Minimum, "vminq_s16(a, b)")
