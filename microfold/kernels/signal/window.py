"""Window functions on samples, in portable C."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.signal.window import SignalWindow


@register
class SignalWindowPortable(Kernel):
    """Window: a shifted 16-bit product for each sample.

    The weights are used as they are in the model. Products are saturated only if some weight can take them
    out of int16.
    """

    name = "s16_signal_window__c"
    op = SignalWindow
    fields = declare(
        "frames",
        Field("length", "samples of a frame"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1)

    def cost(self, layer: LayerContext) -> float:
        per_sample = 7.0 + 1.0 * layer.target.has("thumb1") + 5.0 * self._saturates(layer)
        return 20 + layer.node.operands[0].type.size * per_sample

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return 0 if index == 0 else None

    def _saturates(self, layer: LayerContext) -> bool:
        op, weights = layer.node.op, layer.array(1)
        assert isinstance(op, SignalWindow)
        extremes = np.array(DType.INT16.range) if weights is None else weights.astype(np.int64)
        low, high = DType.INT16.range
        products = np.outer([low, high], extremes) >> op.shift
        return bool(products.min() < low or products.max() > high)

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, SignalWindow)
        x, weights = (value.type for value in layer.node.operands)
        spec = (("shift", op.shift), ("saturates", self._saturates(layer)))
        function = CFunction("signal/window.c.j2", self.name, spec, self.fields)
        return KernelCall(function, {"frames": x.size // weights.size, "length": weights.size})
