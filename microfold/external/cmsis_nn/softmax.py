"""Softmax through CMSIS-NN."""

from __future__ import annotations

from microfold.external.cmsis_nn.library import CMSIS_NN
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.fields import declare
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.normalize.softmax import SoftmaxInt8
from microfold.ops.normalize.softmax import Softmax, SoftmaxParameters, softmax_parameters


class SoftmaxS8(Kernel):
    """Softmax, documented by the library as bit-accurate with TensorFlow Lite for Microcontrollers."""

    name = "s8_softmax__cmsis_nn"
    op = Softmax
    fields = declare(
        "rows",
        "depth",
        "multiplier",
        "shift",
        "difference_minimum",
    )

    def _parameters(self, layer: LayerContext) -> SoftmaxParameters:
        quant = layer.node.operands[0].type.quant
        assert isinstance(layer.node.op, Softmax) and quant is not None
        return softmax_parameters(layer.node.op.beta, quant)

    def supports(self, layer: LayerContext) -> str | None:
        reason = SoftmaxInt8().supports(layer)
        if reason is None and not 0 <= self._parameters(layer).left_shift <= 31:
            return f"the input multiplier's shift must be 0 to 31; it is {self._parameters(layer).left_shift}"
        return reason

    def lower(self, layer: LayerContext) -> KernelCall:
        x = layer.node.operands[0].type
        mantissa, shift, minimum = self._parameters(layer)
        parameters = {
            "rows": x.size // x.shape[-1],
            "depth": x.shape[-1],
            "multiplier": mantissa,
            "shift": shift,
            "difference_minimum": minimum,
        }
        function = CFunction(
            "external/cmsis_nn/softmax.c.j2", self.name, (), self.fields, CMSIS_NN, ("arm_softmax_s8",)
        )
        return KernelCall(function, parameters)
