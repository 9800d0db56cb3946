"""float16 pooling and means in portable C, and float16 pooling with Helium."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.broadcast import loop_records
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing.float16_mve import LANES, RUN
from microfold.kernels.pool2d.portable import (
    POOL_FIELDS,
    pool_parameters,
    pool_types,
    unsupported_pool,
    window_terms,
)
from microfold.kernels.reduce.portable import LOOPS, Reduction
from microfold.kernels.requantize import output_range
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean


class _HalfPool(Kernel):
    """float16 pooling pixel by pixel and channel by channel, computed in float32.

    The kernel has no constants. The result is clamped in float32 and rounded once.

    Class attributes:
        kind: ``average`` or ``max``.
        core: ``c`` or ``mve``.
    """

    kind: ClassVar[str]
    core: ClassVar[str] = "c"
    fields = (*POOL_FIELDS, *output_range.LIMIT_FIELDS)

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_pool(layer, DType.FLOAT16)

    def terms(self, layer: LayerContext) -> Terms:
        _, out, _ = pool_types(layer)
        return Terms(call=1) + window_terms(layer, "output", out.shape[3])

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, out, window = pool_types(layer)
        return window_overlap(x, out, window, 1, reads_first=False)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        low, high = output_range.float_bounds(layer.node)
        limits: dict[str, Parameter] = {"output_minimum": low, "output_maximum": high}
        spec = (("kind", self.kind), ("core", self.core))
        return KernelCall(
            CFunction("pool2d/f16.c.j2", self.name, spec, self.fields), pool_parameters(layer) | limits
        )


class _HalfPoolMve(_HalfPool):
    """float16 pooling of eight channels at a time, in float16 vectors; the tail is predicated."""

    features = frozenset({"mve_fp"})
    core = "mve"

    def terms(self, layer: LayerContext) -> Terms:
        _, out, _ = pool_types(layer)
        return Terms(call=1) + window_terms(layer, "block", -(-out.shape[3] // LANES))


@register
class MaxPool2DHalf(_HalfPool):
    """float16 maxima, one channel after the other; float32 represents each float16 exactly."""

    name = "f16_max_pool2d__c"
    op = MaxPool2D
    kind = "max"


@register
class AveragePool2DHalf(_HalfPool):
    """float16 means, one channel after the other: the float32 sum is divided by the count."""

    name = "f16_average_pool2d__c"
    op = AveragePool2D
    kind = "average"


@register
class MaxPool2DHalfMve(_HalfPoolMve):
    """float16 maxima of eight channels at a time, by VMAXNM."""

    name = "f16_max_pool2d__mve"
    op = MaxPool2D
    kind = "max"


@register
class AveragePool2DHalfMve(_HalfPoolMve):
    """float16 means of eight channels at a time: a float16 sum, multiplied by the reciprocal of the count."""

    name = "f16_average_pool2d__mve"
    op = AveragePool2D
    kind = "average"

    def supports(self, layer: LayerContext) -> str | None:
        size = pool_types(layer)[2].size
        if size[0] * size[1] > RUN:
            return f"it needs a window of at most {RUN} elements, summed in float16; got {size}"
        return super().supports(layer)


@register
class MeanHalf(Reduction):
    """float16 means over any axes: the float32 sum is divided by the count and rounded once.

    The constants `kept` and `reduced` have three loop records each, as in `Reduction`.
    """

    name = "f16_mean__c"
    op = Mean
    dtypes = (DType.FLOAT16,)
    combine = ""

    fields = declare(
        Field("kept", "loops over the output; first: step in the input"),
        "reduced",
        "count",
        *output_range.LIMIT_FIELDS,
    )

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, Mean)
        kept, reduced = (loop_records([(*loop, 0) for loop in loops], LOOPS) for loops in self.loops(layer))
        clamp, limits = output_range.clamping(layer.node)
        parameters: dict[str, Parameter] = {
            "kept": Constant("kept", kept, record="mf_loop"),
            "reduced": Constant("reduced", reduced, record="mf_loop"),
            "count": float(op.count(layer.node.operands[0].type)),
        }
        return KernelCall(
            CFunction("reduce/f16.c.j2", self.name, (("clamp", clamp),), self.fields), parameters | limits
        )
