"""Scales and energies of spectra, in portable C."""

from __future__ import annotations

from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.signal.complex_numbers import ComplexAbs
from microfold.ops.signal.energy import SignalEnergy
from microfold.ops.signal.fft_auto_scale import SignalFftAutoScale


@register
class SignalFftAutoScalePortable(Kernel):
    """Automatic scaling: the largest magnitude, as the reference computes it, then a shift of each sample.

    The kernel has no constants.
    """

    name = "s16_signal_fft_auto_scale__c"
    op = SignalFftAutoScale
    fields = declare("length")

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def cost(self, layer: LayerContext) -> float:
        per_sample = 17.0 if layer.target.has("thumb1") else 13.3
        return 30 + per_sample * layer.node.operands[0].type.size

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return 0

    def lower(self, layer: LayerContext) -> KernelCall:
        function = CFunction("signal/fft_auto_scale.c.j2", self.name, (), self.fields)
        return KernelCall(function, {"length": layer.node.operands[0].type.size})


@register
class SignalEnergyPortable(Kernel):
    """Energy: two squares for each number of the spectrum, and zeros elsewhere.

    The sum of squares exceeds 31 bits in a single case. The kernel has no constants.
    """

    name = "s16_u32_signal_energy__c"
    op = SignalEnergy
    fields = declare(
        Field("start", "first number with an energy"),
        "end",
        Field("length", "elements of the output"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def cost(self, layer: LayerContext) -> float:
        op = layer.node.op
        assert isinstance(op, SignalEnergy)
        inside = op.end_index - op.start_index
        per_number = 10.0 if layer.target.has("thumb1") else 7.0
        return 20 + per_number * inside + 3.0 * (layer.node.outputs[0].type.size - inside)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return 0

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, SignalEnergy)
        function = CFunction("signal/energy.c.j2", self.name, (), self.fields)
        length = layer.node.outputs[0].type.size
        return KernelCall(function, {"start": op.start_index, "end": op.end_index, "length": length})


@register
class ComplexAbsPortable(Kernel):
    """Magnitude by the root of a sum of squares, or by hypotf if the sum would lose digits.

    The kernel has no constants.
    """

    name = "f32_complex_abs__c"
    op = ComplexAbs
    fields = declare("length")

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def cost(self, layer: LayerContext) -> float:
        per_number = 19.0 if layer.target.has("fpu") else 400.0
        return 20 + per_number * layer.node.outputs[0].type.size

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return 0

    def lower(self, layer: LayerContext) -> KernelCall:
        function = CFunction("signal/complex_abs.c.j2", self.name, (), self.fields)
        return KernelCall(function, {"length": layer.node.outputs[0].type.size})
