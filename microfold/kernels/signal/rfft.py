"""Fourier transforms of real samples and of complex numbers, in portable C."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import real_fft
from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.names import TYPES
from microfold.ops.signal.complex_numbers import ComplexFft
from microfold.ops.signal.rfft import SignalIrfft, SignalRfft

# Instructions per number in the first stage and in the step for real samples, and per butterfly in a later
# stage, by radix. Fitted to the counts of simulated cores for 22 lengths, each within 10 %.
Instructions = tuple[float, dict[int, float]]
_WIDE: dict[DType, Instructions] = {
    DType.INT16: (67.0, {2: 41.0, 3: 71.0, 4: 106.0, 5: 214.0}),
    DType.INT32: (90.0, {2: 85.0, 3: 186.0, 4: 252.0, 5: 475.0}),
    DType.FLOAT32: (53.0, {2: 30.0, 3: 48.0, 4: 60.0, 5: 103.0}),
}
# Instructions on cores with 32-bit products only.
_NARROW: dict[DType, Instructions] = {
    DType.INT16: (125.0, {2: 82.0, 3: 140.0, 4: 175.0, 5: 333.0}),
    DType.INT32: (370.0, {2: 370.0, 3: 875.0, 4: 855.0, 5: 2380.0}),
}
_SOFT_FLOATS: Instructions = (680.0, {2: 512.0, 3: 1360.0, 4: 1685.0, 5: 3430.0})
_DSP: Instructions = (48.0, {2: 43.0, 3: 78.0, 4: 51.0, 5: 232.0})


class _FftKernel(Kernel):
    """FFT in the output's memory: numbers are put in the order of the first stage, then stages follow.

    The first stage does not multiply by its twiddle factors, which are 1. The product would keep all bits of
    a number that has been divided by a radix. Sums of int16 need not wrap before they are stored, because
    only sums follow.

    Constants: the reference's twiddle factors, with real and imaginary part, as many as stages read; and the
    position before the first stage of each number with an index below the number of its butterflies. The
    other numbers of a butterfly follow it at that position.

    Class attributes:
        inverse: whether the transform is from spectra to samples.
        real: whether samples are real, which needs an additional step with its own twiddle factors.
        template: path of the C template.
        four: implementation of stages of radix 4; empty: the one of other stages.
    """

    inverse: ClassVar[bool] = False
    real: ClassVar[bool] = True
    template: ClassVar[str]
    four: ClassVar[str] = ""
    fields = declare(
        Field("stages", "[stages][3]: radix, number of resulting transforms, size of combined ones"),
        "stage_count",
        Field("twiddles", "[numbers][2], of the stages: real part, imaginary part"),
        Field("last_twiddles", "[half of the numbers][2], of the step for real samples"),
        Field("places", "positions of numbers before the first stage"),
        "rows",
        Field("points", "complex numbers of a transform"),
        Field("samples", "samples of a row"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def cost(self, layer: LayerContext) -> float:
        points = self._points(layer)
        number, butterflies = self._parts(layer)
        _, *others = real_fft.stages(points)
        stages = sum(butterflies[stage.radix] * points / stage.radix for stage in others)
        return 100 + self._rows(layer) * (number * points + stages)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        """Return the overlap: a row is written while its input row is read; later input rows must stay."""
        x, out, rows = layer.node.operands[0].type, layer.node.outputs[0].type, self._rows(layer)
        read, written = x.nbytes // rows, out.nbytes // rows
        return written + max(0, (rows - 1) * (written - read))

    def _parts(self, layer: LayerContext) -> Instructions:
        dtype, narrow = layer.node.operands[0].type.dtype, layer.target.has("thumb1")
        if dtype.is_float and not layer.target.has("fpu"):
            slower = 1.85 if narrow else 1.0
            number, butterflies = _SOFT_FLOATS
            return slower * number, {radix: slower * count for radix, count in butterflies.items()}
        return (_NARROW if narrow else _WIDE)[dtype]

    def _points(self, layer: LayerContext) -> int:
        op = layer.node.op
        assert isinstance(op, SignalRfft | SignalIrfft)
        return op.fft_length // 2

    def _rows(self, layer: LayerContext) -> int:
        x = layer.node.operands[0].type
        return x.size // x.shape[-1]

    def lower(self, layer: LayerContext) -> KernelCall:
        x, points = layer.node.operands[0].type, self._points(layer)
        stages = real_fft.stages(points)
        first = stages[0]
        starts = real_fft.order(points)[:: first.radix]
        table = np.array([(stage.radix, stage.stride, stage.size) for stage in stages], np.int16)
        parameters: dict[str, Parameter] = {
            "stages": Constant("stages", table),
            "places": Constant("places", (np.argsort(starts) * first.radix).astype(np.uint16)),
            "rows": self._rows(layer),
            "points": points,
        }
        if self.real:
            last = real_fft.last_twiddles(points, self.inverse, x.dtype)
            parameters["last_twiddles"] = Constant("last_twiddles", last)
        factors = _factors(stages)
        if factors:
            twiddles = real_fft.twiddles(points, self.inverse, x.dtype)[:factors]
            parameters["twiddles"] = Constant("twiddles", twiddles)
        if len(stages) > 1:
            parameters["stage_count"] = len(stages)
        if self.real and not self.inverse:
            parameters["samples"] = x.shape[-1]
        spec = (
            ("type", C_TYPES[x.dtype]),
            ("t", TYPES[x.dtype]),
            ("four", self.four or TYPES[x.dtype]),
            ("first", first.radix),
            ("others", tuple(sorted({stage.radix for stage in stages[1:]}, reverse=True))),
        )
        return KernelCall(CFunction(self.template, self.name, spec, self.fields), parameters)


def _factors(stages: tuple[real_fft.Stage, ...]) -> int:
    """Return the number of twiddle factors that all stages but the first read, including roots of unity."""
    furthest = [(stage.radix - 1) * (stage.size - 1) * stage.stride for stage in stages[1:]]
    roots = [stage.radix // 2 * stage.size * stage.stride for stage in stages if stage.radix in (3, 5)]
    return max((*furthest, *roots), default=-1) + 1


@register
class SignalRfftPortable(_FftKernel):
    """Samples to spectra: after the stages, each number and its mirror image yield two of the spectrum."""

    name = "signal_rfft__c"
    op = SignalRfft
    template = "signal/rfft.c.j2"


@register
class SignalIrfftPortable(_FftKernel):
    """Spectra to samples: before the stages, two numbers of the spectrum yield one and its mirror image."""

    name = "signal_irfft__c"
    op = SignalIrfft
    inverse = True
    template = "signal/irfft.c.j2"


@register
class ComplexFftPortable(_FftKernel):
    """Complex FFT: numbers are put in the order of the first stage; then the stages follow."""

    name = "complex_fft__c"
    op = ComplexFft
    real = False
    template = "signal/complex_fft.c.j2"

    def _parts(self, layer: LayerContext) -> Instructions:
        number, butterflies = super()._parts(layer)
        return 0.5 * number, butterflies  # the other half is the step for real samples

    def _points(self, layer: LayerContext) -> int:
        return layer.node.operands[0].type.shape[-2]

    def _rows(self, layer: LayerContext) -> int:
        return layer.node.operands[0].type.size // (2 * self._points(layer))


class _RealFftDspKernel(_FftKernel):
    """FFT with DSP instructions for stages of radix 4 and the real step, on complex numbers in words.

    Constants are as in portable C. Sums of halfwords wrap like int16. Halving instructions keep the
    additional bit of the sum.
    """

    features = frozenset({"dsp"})
    four = "dsp"

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not DType.INT16:
            return f"it needs int16; got {x.dtype.value}"
        if all(stage.radix != 4 for stage in real_fft.stages(self._points(layer))):
            return "it needs stages of radix 4"
        return super().supports(layer)

    def _parts(self, layer: LayerContext) -> Instructions:
        return _DSP


@register
class SignalRfftInt16Dsp(_RealFftDspKernel):
    """Samples to spectra, as in portable C, but on words."""

    name = "s16_signal_rfft__dsp"
    op = SignalRfft
    template = "signal/rfft.c.j2"


@register
class SignalIrfftInt16Dsp(_RealFftDspKernel):
    """Spectra to samples, as in portable C, but on words."""

    name = "s16_signal_irfft__dsp"
    op = SignalIrfft
    inverse = True
    template = "signal/irfft.c.j2"
