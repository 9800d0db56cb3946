"""Importers of signal operators between samples and the energies of their spectrum."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.operators.signal import options
from microfold.ir.types import DType
from microfold.ops.signal.energy import SignalEnergy
from microfold.ops.signal.fft_auto_scale import SignalFftAutoScale
from microfold.ops.signal.rfft import SignalIrfft, SignalRfft
from microfold.ops.signal.window import SignalWindow

# Element types in options, by their number in the file format.
TYPES = {0: DType.FLOAT32, 2: DType.INT32, 7: DType.INT16}


@imports("CUSTOM SignalWindow")
def signal_window(context: OperatorContext) -> None:
    op = SignalWindow(options.read(context, "shift")["shift"])
    options.emit(context, op, context.input(0), context.input(1))


@imports("CUSTOM SignalFftAutoScale")
def signal_fft_auto_scale(context: OperatorContext) -> None:
    options.emit(context, SignalFftAutoScale(), context.input(0))


@imports("CUSTOM SignalRfft")
def signal_rfft(context: OperatorContext) -> None:
    _transform(context, SignalRfft)


@imports("CUSTOM SignalIrfft")
def signal_irfft(context: OperatorContext) -> None:
    _transform(context, SignalIrfft)


def _transform(context: OperatorContext, op: type[SignalRfft] | type[SignalIrfft]) -> None:
    given = options.read(context, "T", "fft_length")
    require_type(context, given["T"])
    options.emit(context, op(given["fft_length"]), context.input(0))


def require_type(context: OperatorContext, stated: int) -> None:
    """Raise `Unsupported` if the type in the options is not the type of the input."""
    dtype = context.input(0).type.dtype
    if TYPES.get(stated) is not dtype:
        named = TYPES[stated].value if stated in TYPES else f"number {stated}"
        raise Unsupported(f"T must be the type of its input, {dtype.value}; it is {named}")


@imports("CUSTOM SignalEnergy")
def signal_energy(context: OperatorContext) -> None:
    given = options.read(context, "end_index", "start_index")
    options.emit(context, SignalEnergy(given["start_index"], given["end_index"]), context.input(0))
