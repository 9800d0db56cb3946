"""Elementwise float16 kernels in portable C and with Helium; casts between float16 and float32."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op
from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS, BinaryKernel
from microfold.kernels.elementwise.broadcast_mve import run_terms
from microfold.kernels.fields import declare
from microfold.kernels.kernel import Kernel, define, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.float16_mve import LANES
from microfold.kernels.packing.float32_block import float_clamping
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub


class _HalfBinary(BinaryKernel):
    """One C expression of both elements in float32, rounded to float16, as float16 units compute it.

    Elements are computed one by one, without constants. Limits are applied in float32.
    """

    dtype = DType.FLOAT16
    template = "elementwise/f16.c.j2"
    fields = declare(
        *LOOP_FIELDS,
        *output_range.LIMIT_FIELDS,
    )
    # C expression of the elements x and y as floats.
    expression: ClassVar[str]

    def lower(self, layer: LayerContext) -> KernelCall:
        clamp, limits = output_range.clamping(layer.node)
        spec = (("expression", self.expression), ("clamp", clamp))
        return self.call(layer, spec, limits)


class _HalfBinaryMve(BinaryKernel):
    """One intrinsic for eight elements at a time; the tail is predicated, and limits are vectors."""

    features = frozenset({"mve_fp"})
    dtype = DType.FLOAT16
    template = "elementwise/f16_mve.c.j2"
    fields = declare(
        *LOOP_FIELDS,
        *output_range.LIMIT_FIELDS,
    )
    intrinsic: ClassVar[str]

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1) + run_terms(self.loops(layer), layer.node.output.type.size, LANES)

    def lower(self, layer: LayerContext) -> KernelCall:
        clamp_kind, limits = float_clamping(layer)
        return self.call(layer, (("intrinsic", self.intrinsic), ("clamp_kind", clamp_kind)), dict(limits))


def _define_portable(name: str, operator: type[Op], expression: str) -> None:
    doc = f"{operator.__name__} of float16: ``{expression}`` in float32, rounded."
    define(_HalfBinary, name, operator, doc, expression=expression)


def _define_mve(name: str, operator: type[Op], intrinsic: str) -> None:
    doc = f"{operator.__name__} of float16: ``{intrinsic}``, eight elements at a time."
    define(_HalfBinaryMve, name, operator, doc, intrinsic=intrinsic)


_define_portable("f16_add__c", Add, "x + y")
_define_mve("f16_add__mve", Add, "vaddq_f16")
_define_portable("f16_sub__c", Sub, "x - y")
_define_mve("f16_sub__mve", Sub, "vsubq_f16")
_define_portable("f16_mul__c", Mul, "x * y")
_define_mve("f16_mul__mve", Mul, "vmulq_f16")
_define_portable("f16_maximum__c", Maximum, "x > y ? x : y")
_define_mve("f16_maximum__mve", Maximum, "vmaxnmq_f16")
_define_portable("f16_minimum__c", Minimum, "x < y ? x : y")
_define_mve("f16_minimum__mve", Minimum, "vminnmq_f16")


class _HalfClip(Kernel):
    """Clip of float16 elements.

    Class attributes:
        core: ``c``: one by one, as float32; ``mve``: vectors of eight.
    """

    op = Clip
    core: ClassVar[str]
    fields = declare(
        "length",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not DType.FLOAT16:
            return f"it needs float16; got {x.dtype.value}"
        return "it does not support an epilogue" if layer.node.epilogue else None

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, element=layer.node.output.type.size)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return 0

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, Clip)
        parameters: dict[str, Parameter] = {
            "length": layer.node.output.type.size,
            "output_minimum": op.minimum,
            "output_maximum": op.maximum,
        }
        return KernelCall(
            CFunction("elementwise/clip_f16.c.j2", self.name, (("core", self.core),), self.fields),
            parameters,
        )


@register
class ClipHalf(_HalfClip):
    """Clip one element after the other, as float32, which represents each float16 exactly."""

    name = "f16_clip__c"
    core = "c"


@register
class ClipHalfMve(_HalfClip):
    """Clip of eight elements at a time; the tail is predicated."""

    name = "f16_clip__mve"
    features = frozenset({"mve_fp"})
    core = "mve"


class _HalfCast(Kernel):
    """Casts between float16 and float32, by helper functions for one element or for a run of them.

    Class attributes:
        core: ``c``: one by one; ``mve``: vectors of four.
    """

    op = Cast
    core: ClassVar[str]
    fields = declare(
        "length",
    )

    def supports(self, layer: LayerContext) -> str | None:
        x, out = layer.node.operands[0].type, layer.node.output.type
        if {x.dtype, out.dtype} != {DType.FLOAT16, DType.FLOAT32}:
            return f"it converts between float16 and float32; got {x.dtype.value} to {out.dtype.value}"
        return "it does not support an epilogue" if layer.node.epilogue else None

    def terms(self, layer: LayerContext) -> Terms:
        narrowing = layer.node.output.type.dtype is DType.FLOAT16
        return Terms(call=1, narrowed=0, widened=0) + Terms(
            {"narrowed" if narrowing else "widened": layer.node.output.type.size}
        )

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        # A narrower element is written after the wider element at its address has been read.
        return 0 if layer.node.output.type.dtype is DType.FLOAT16 else None

    def lower(self, layer: LayerContext) -> KernelCall:
        out = layer.node.output.type
        spec = (("core", self.core), ("narrows", out.dtype is DType.FLOAT16))
        return KernelCall(
            CFunction("elementwise/conversions/cast_f16.c.j2", self.name, spec, self.fields),
            {"length": out.size},
        )


@register
class CastHalf(_HalfCast):
    """Cast one element after the other, by the core's instruction, or by integer operations on the bits."""

    name = "f16_cast__c"
    core = "c"


@register
class CastHalfMve(_HalfCast):
    """Cast of four elements at a time, by the conversion instructions."""

    name = "f16_cast__mve"
    features = frozenset({"mve_fp"})
    core = "mve"
