"""Importers of signal operators on the energies of frequency bands."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.operators.signal import options
from microfold.ir.types import TensorType
from microfold.ops.signal.filter_bank import SignalFilterBank, bounds_fault
from microfold.ops.signal.filter_bank_log import SignalFilterBankLog
from microfold.ops.signal.filter_bank_spectral_subtraction import SignalFilterBankSpectralSubtraction
from microfold.ops.signal.filter_bank_square_root import SignalFilterBankSquareRoot
from microfold.ops.signal.pcan import SignalPcan


@imports("CUSTOM SignalFilterBank")
def signal_filter_bank(context: OperatorContext) -> None:
    op = SignalFilterBank(options.read(context, "num_channels")["num_channels"])
    inputs = [context.input(index) for index in range(6)]
    constants = [context.constant(index, "weights, starts and widths") for index in range(1, 6)]
    op.infer_all([value.type for value in inputs])
    fault = bounds_fault(inputs[0].type.size, inputs[1].type.size, *constants[2:])
    if fault:
        raise Unsupported(fault)
    options.emit(context, op, *inputs)


@imports("CUSTOM SignalFilterBankSquareRoot")
def signal_filter_bank_square_root(context: OperatorContext) -> None:
    options.emit(context, SignalFilterBankSquareRoot(), context.input(0), context.input(1))


@imports("CUSTOM SignalFilterBankSpectralSubtraction")
def signal_filter_bank_spectral_subtraction(context: OperatorContext) -> None:
    """Import the operator. Its second output, the noise estimate, is kept for the next run."""
    given = options.read(
        context,
        *("alternate_one_minus_smoothing", "alternate_smoothing", "clamping", "min_signal_remaining"),
        *("num_channels", "one_minus_smoothing", "smoothing", "smoothing_bits", "spectral_subtraction_bits"),
    )
    x = context.input(0)
    channels, clamping = given.pop("num_channels"), bool(given.pop("clamping"))
    if x.type.shape != (channels,):
        raise Unsupported(f"its input must have num_channels elements, {channels}; it is {x.type}")
    op = SignalFilterBankSpectralSubtraction(clamping=clamping, **given)
    estimate_type = TensorType(x.type.dtype, x.type.shape)
    estimate = context.state(f"{context.name()}_noise", estimate_type)
    before = estimate.read(estimate_type)
    result, after = context.emit(op, x, before, names=options.names(context, 2))
    estimate.current = context.kept(after, before)
    options.finish(context, result, after)


@imports("CUSTOM SignalPCAN")
def signal_pcan(context: OperatorContext) -> None:
    op = SignalPcan(options.read(context, "snr_shift")["snr_shift"])
    options.emit(context, op, *(context.input(index) for index in range(3)))


@imports("CUSTOM SignalFilterBankLog")
def signal_filter_bank_log(context: OperatorContext) -> None:
    given = options.read(context, "input_correction_bits", "output_scale")
    options.emit(context, SignalFilterBankLog(**given), context.input(0))
