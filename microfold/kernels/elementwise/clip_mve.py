"""Clips with Helium, in whole vectors."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.terms import Terms, vector_terms
from microfold.kernels.elementwise.binary import C_TYPES, ClipPortable, clip_fields
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext


class _ClipMve(ClipPortable):
    """Clip of whole vectors of 16 bytes by two instructions; the remaining elements are predicated."""

    dtype: ClassVar[DType]
    features: ClassVar[frozenset[str]] = frozenset({"mve"})

    def _lanes(self) -> int:
        return 16 // self.dtype.itemsize

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not self.dtype:
            return f"it needs {self.dtype.value}; got {x.dtype.value}"
        return super().supports(layer)

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1) + vector_terms(1, layer.node.outputs[0].type.size, self._lanes())

    def lower(self, layer: LayerContext) -> KernelCall:
        lane = "f32" if self.dtype.is_float else f"s{8 * self.dtype.itemsize}"
        tail = layer.node.outputs[0].type.size % self._lanes() != 0
        spec = (("type", C_TYPES[self.dtype]), ("lane", lane), ("tail", tail))
        return KernelCall(
            CFunction("elementwise/clip_mve.c.j2", "clip__mve", spec, clip_fields(self.dtype)),
            super().lower(layer).parameters,
        )


@register
class ClipInt8Mve(_ClipMve):
    """Clip of sixteen int8 elements at once, with VMAX and VMIN."""

    name = "s8_clip__mve"
    dtype = DType.INT8


@register
class ClipInt16Mve(_ClipMve):
    """Clip of eight int16 elements at once, with VMAX and VMIN."""

    name = "s16_clip__mve"
    dtype = DType.INT16


@register
class ClipFloatMve(_ClipMve):
    """Clip of four float32 elements at once, with VMAXNM and VMINNM."""

    name = "f32_clip__mve"
    dtype = DType.FLOAT32
    features = frozenset({"mve_fp"})
