"""A custom operator of one's own: its meaning, its import and its C."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from microfold.frontend import flexbuffer
from microfold.frontend.context import OperatorContext
from microfold.frontend.importers import imports
from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.kernels import kernel
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.fields import declare
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext


@register
class AcmeSmooth(Op, frozen=True):
    """``y[i] = y[i - 1] + ((x[i] - y[i - 1]) >> shift)`` along int16 samples, from 0 on."""

    name: ClassVar[str] = "acme_smooth"

    shift: int

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype is DType.INT16, f"acme_smooth: needs int16; it is {x}")
        require(0 < self.shift < 16, f"acme_smooth: the shift must be in (0, 16); it is {self.shift}")
        return TensorType(DType.INT16, x.shape)

    def reference(self, x: Tensor) -> Array:
        result, last = np.empty(x.data.size, np.int16), 0
        for index, sample in enumerate(x.data.reshape(-1).tolist()):
            last += (sample - last) >> self.shift
            result[index] = last
        return result.reshape(x.type.shape)


@imports("CUSTOM AcmeSmooth")
def acme_smooth(context: OperatorContext) -> None:
    options = flexbuffer.integers(context.raw.custom_options(), ("shift",))
    context.finish(*context.emit(AcmeSmooth(options["shift"]), context.input(0)))


@kernel.register
class AcmeSmoothPortable(Kernel):
    """Sample by sample; no constants."""

    name = "s16_acme_smooth__c"
    op = AcmeSmooth
    fields = declare("length", "shift")

    def supports(self, layer: LayerContext) -> str | None:
        return "it fuses nothing" if layer.node.epilogue else None

    def cost(self, layer: LayerContext) -> float:
        return 20 + 6.0 * layer.node.operands[0].type.size

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, AcmeSmooth)
        here = Path(__file__).parent
        function = CFunction("smooth.c.j2", self.name, (), self.fields, templates=here)
        return KernelCall(function, {"length": layer.node.outputs[0].type.size, "shift": op.shift})
