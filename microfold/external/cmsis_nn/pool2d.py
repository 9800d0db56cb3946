"""Pooling through CMSIS-NN."""

from __future__ import annotations

from microfold.external.cmsis_nn import library, scratch
from microfold.external.cmsis_nn.library import CMSIS_NN
from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.fields import Field
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.pool2d.portable import POOL_FIELDS, pool_parameters, pool_types, unsupported_pool
from microfold.kernels.requantize import output_range
from microfold.ops.pool2d import AveragePool2D, MaxPool2D


class _Pool(Kernel):
    calls: tuple[str, ...]
    fields = (*POOL_FIELDS, *output_range.LIMIT_FIELDS, Field("scratch_size"))

    def supports(self, layer: LayerContext) -> str | None:
        x, out, _ = pool_types(layer)
        return unsupported_pool(layer, DType.INT8) or library.unsupported_extents(x, out)

    def scratch(self, layer: LayerContext) -> int:
        return 0

    def lower(self, layer: LayerContext) -> KernelCall:
        low, high = output_range.integer_bounds(layer.node)
        size = self.scratch(layer)
        parameters = pool_parameters(layer) | {
            "output_minimum": low,
            "output_maximum": high,
        }
        if size:
            parameters |= {"scratch_size": size}
        spec = (("function", self.calls[0]), ("sized", len(self.calls) > 1), ("scratch", size > 0))
        function = CFunction(
            "external/cmsis_nn/pool2d.c.j2", self.name, spec, self.fields, CMSIS_NN, self.calls
        )
        return KernelCall(function, parameters, size)


class AveragePoolS8(_Pool):
    """Average pooling, which rounds half away from zero, as the reference does."""

    name = "s8_average_pool2d__cmsis_nn"
    op = AveragePool2D
    calls = ("arm_avgpool_s8", "arm_avgpool_s8_get_buffer_size")

    def scratch(self, layer: LayerContext) -> int:
        return scratch.average_pooling(pool_types(layer)[0].shape[3], layer.target)


class MaxPoolS8(_Pool):
    """int8 max pooling by ``arm_max_pool_s8``."""

    name = "s8_max_pool2d__cmsis_nn"
    op = MaxPool2D
    calls = ("arm_max_pool_s8",)
