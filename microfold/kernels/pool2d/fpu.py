"""float32 pooling for floating-point units: four channels at a time."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing.float32_block import CHANNELS
from microfold.kernels.pool2d.portable import (
    POOL_FIELDS,
    pool_parameters,
    pool_types,
    unsupported_pool,
    window_terms,
)
from microfold.kernels.requantize import output_range
from microfold.ops.pool2d import AveragePool2D, MaxPool2D


class _Pool2DFpu(Kernel):
    """float32 pooling pixel by pixel, four channels at once; the last block may overlap the one before.

    The kernel has no constants. Each channel combines its elements in the order of the window, as in portable
    C.

    Class attributes:
        kind: ``average`` or ``max``.
    """

    features = frozenset({"fpu", "thumb2"})
    kind: ClassVar[str]
    fields = (*POOL_FIELDS, *output_range.LIMIT_FIELDS)

    def supports(self, layer: LayerContext) -> str | None:
        if reason := unsupported_pool(layer, DType.FLOAT32):
            return reason
        channels = layer.node.outputs[0].type.shape[3]
        return f"it needs at least {CHANNELS} channels; got {channels}" if channels < CHANNELS else None

    def terms(self, layer: LayerContext) -> Terms:
        _, out, _ = pool_types(layer)
        blocks, (clamp, _) = -(-out.shape[3] // CHANNELS), output_range.clamping(layer.node)
        clamped = out.size // out.shape[3] * blocks * clamp
        return Terms(call=1, clamped=clamped) + window_terms(layer, "block", blocks)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, out, window = pool_types(layer)
        return window_overlap(x, out, window, 1, reads_first=False)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        clamp, limits = output_range.clamping(layer.node)
        spec = (("kind", self.kind), ("clamp", clamp))
        parameters = pool_parameters(layer) | limits
        return KernelCall(CFunction("pool2d/f32_fpu.c.j2", self.name, spec, self.fields), parameters)


@register
class AveragePool2DFpu(_Pool2DFpu):
    """float32 means of four channels at once; each sum is divided by the number of elements."""

    name = "f32_average_pool2d__fpu_4"
    op = AveragePool2D
    kind = "average"


@register
class MaxPool2DFpu(_Pool2DFpu):
    """float32 maxima of four channels at once, by comparisons as in C."""

    name = "f32_max_pool2d__fpu_4"
    op = MaxPool2D
    kind = "max"
