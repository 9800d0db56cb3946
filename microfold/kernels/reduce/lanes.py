"""Reductions over axes before the channels, with channels in the lanes of vectors, or four floats at once."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op
from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import define
from microfold.kernels.layer import LayerContext
from microfold.kernels.names import activation_type
from microfold.kernels.reduce.portable import Reduction
from microfold.kernels.requantize import output_range
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin

FLOATS = 4  # channels per block without vectors


class _Lanes(Reduction):
    """Reductions with channels in lanes of vectors, or four floats at once, in the reference's order.

    The kernel has no constants. The tail of vectors is predicated; the last block of floats may overlap the
    one before. A mean is a division on cores without vectors, and a product with the reciprocal in vectors.

    Class attributes:
        dtype: element type.
        core: ``mve`` or ``fpu``.
    """

    dtype: ClassVar[DType]
    core: ClassVar[str]
    fields = declare(
        Field("reciprocal", "1 / count"),
        Field("divisor", "count"),
        "images",
        "image_step",
        "channels",
        Field("count", "number of elements per output"),
        Field("step", "step from one element to the next"),
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        if reason := super().supports(layer):
            return reason
        kept, reduced = self.loops(layer)
        if len(kept) > 2 or len(reduced) > 1 or kept[-1][1] != 1:
            return "it needs adjacent reduced axes before the channels"
        if self.core == "fpu" and kept[-1][0] < FLOATS:
            return f"it needs at least {FLOATS} channels; got {kept[-1][0]}"
        return None

    def _count(self) -> int:
        return 16 // self.dtype.itemsize if self.core == "mve" else FLOATS

    def terms(self, layer: LayerContext) -> Terms:
        kept, reduced = self.loops(layer)
        images = layer.node.outputs[0].type.size // kept[-1][0]
        blocks = images * -(-kept[-1][0] // self._count())
        return Terms(call=1, image=images, block=blocks, element=blocks * reduced[0][0])

    def lower(self, layer: LayerContext) -> KernelCall:
        kept, reduced = self.loops(layer)
        images, image_step = kept[0] if len(kept) > 1 else (1, 0)
        clamp, limits = output_range.clamping(layer.node)
        parameters: dict[str, Parameter] = {
            "images": images,
            "image_step": image_step,
            "channels": kept[-1][0],
            "count": reduced[0][0],
            "step": reduced[0][1],
        }
        mean = isinstance(layer.node.op, Mean)
        if mean and self.core == "mve":
            parameters["reciprocal"] = 1 / reduced[0][0]
        elif mean:
            parameters["divisor"] = float(reduced[0][0])
        spec = (
            ("core", self.core),
            ("type", C_TYPES[self.dtype]),
            ("combine", self.combine),
            ("mean", mean),
            ("clamp", clamp),
        )
        return KernelCall(CFunction("reduce/lanes.c.j2", self.name, spec, self.fields), parameters | limits)


def _define(name: str, operator: type[Op], combine: str) -> None:
    """Register a kernel; ``mve`` or ``fpu`` is in its name."""
    dtype, core = activation_type(name), "mve" if "__mve" in name else "fpu"
    how = "in vectors, by " + combine if core == "mve" else "four channels at once in C"
    define(
        _Lanes,
        name,
        operator,
        f"{operator.__name__} of {dtype.value}: {how}.",
        features=frozenset({"mve_fp" if core == "mve" and dtype.is_float else core}),
        dtypes=(dtype,),
        dtype=dtype,
        core=core,
        combine=combine,
    )


_define("f32_mean__mve_4", Mean, "vaddq")
_define("f32_mean__fpu_4", Mean, "+= @")
_define("f32_sum__mve_4", Sum, "vaddq")
_define("f32_sum__fpu_4", Sum, "+= @")
_define("f32_reduce_max__mve_4", ReduceMax, "vmaxnmq")
_define("f32_reduce_max__fpu_4", ReduceMax, "= @ > # ? @ : #")
_define("f32_reduce_min__mve_4", ReduceMin, "vminnmq")
_define("f32_reduce_min__fpu_4", ReduceMin, "= @ < # ? @ : #")
_define("s8_reduce_max__mve_16", ReduceMax, "vmaxq")
_define("s8_reduce_min__mve_16", ReduceMin, "vminq")
_define("s16_reduce_max__mve_8", ReduceMax, "vmaxq")
_define("s16_reduce_min__mve_8", ReduceMin, "vminq")
