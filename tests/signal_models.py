"""Small models of signal operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tests.tflite_writer import Array, Writer

TYPE_CODES = {"i2": 7, "i4": 2, "f4": 0}  # of the option T
WINDOW_BITS = 12


def signal(
    writer: Writer,
    name: str,
    inputs: Sequence[int],
    outputs: Sequence[tuple[Sequence[int], str]],
    *,
    inner: bool = True,
    **options: Any,
) -> list[int]:
    """The operator ``Signal…``, with tensors for its outputs of these shapes and types."""
    made = [writer.tensor(*output) for output in outputs]
    custom = bytes(flexbuffers.Dumps(options)) if options else b""
    writer.operator(f"Signal{name}", inputs, made, custom=custom, inner=inner)
    return made


def constant(writer: Writer, array: Array) -> int:
    """A constant of the array's own type and shape."""
    return writer.tensor(array.shape, array.dtype.str[1:], data=array)


def hann(size: int) -> Array:
    window = 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(size) + 0.5) / size)
    return np.rint(window * (1 << WINDOW_BITS)).astype(np.int16)


def triangles(channels: int, numbers: int) -> list[Array]:
    """Weights, unweights, starts of frequencies and of weights, widths: neighbouring bands share energies."""
    edges = np.linspace(1, numbers, channels + 2).astype(np.int64)
    starts, widths = edges[:-1], np.diff(edges)
    rising = [(np.arange(width) * 4096) // width for width in widths]
    weights = 4096 - np.concatenate(rising)
    lists = (weights, 4096 - weights, starts, starts - starts[0], widths)
    return [array.astype(np.int16) for array in lists]


def gains() -> Array:
    """A table of gains of the shape that SignalPCAN wants."""
    estimates = np.concatenate([[0, 1, 2, 0], *([1 << bits, 0, 0, 0] for bits in range(1, 32))])[:125]
    table = 32000 / (1 + np.sqrt(estimates)) ** 0.8
    table[6::4] = -table[4::4][: table[6::4].size] / 2
    return table.astype(np.int16)


def energies(writer: Writer, x: int, samples: int, length: int, channels: int) -> tuple[int, int]:
    """From samples to uint64 energies of channels, and the bits by which the samples were scaled."""
    scaled, bits = signal(writer, "FftAutoScale", [x], [((samples,), "i2"), ((), "i4")])
    numbers = length // 2 + 1
    options = {"T": TYPE_CODES["i2"], "fft_length": length}
    (spectrum,) = signal(writer, "Rfft", [scaled], [((2 * numbers,), "i2")], **options)
    (energy,) = signal(writer, "Energy", [spectrum], [((numbers,), "u4")], start_index=0, end_index=numbers)
    bank = [constant(writer, array) for array in triangles(channels, numbers)]
    (sums,) = signal(writer, "FilterBank", [energy, *bank], [((channels,), "u8")], num_channels=channels)
    return sums, bits


def front_end(writer: Writer, samples: int, length: int, channels: int, frames: int) -> None:
    """Samples to the int8 features of some frames: all operators but those that give samples."""
    new = samples // 2
    x = writer.input((1, new), "i2")
    framed, _ = signal(
        writer,
        "Framer",
        [x],
        [((1, 1, samples), "i2"), ((), "?")],
        frame_size=samples,
        frame_step=new,
        prefill=True,
    )
    shape = constant(writer, np.array([samples], np.int32))
    flat = writer.tensor((samples,), "i2")
    writer.operator("RESHAPE", [framed, shape], flat, inner=True)
    weights = constant(writer, hann(samples))
    (windowed,) = signal(writer, "Window", [flat, weights], [((samples,), "i2")], shift=WINDOW_BITS)
    sums, bits = energies(writer, windowed, samples, length, channels)
    row = ((channels,), "u4")
    (roots,) = signal(writer, "FilterBankSquareRoot", [sums, bits], [row])
    cleaned, noise = signal(
        writer, "FilterBankSpectralSubtraction", [roots], [row, row], **subtraction(channels)
    )
    (gained,) = signal(writer, "PCAN", [cleaned, noise, constant(writer, gains())], [row], snr_shift=6)
    (logs,) = signal(
        writer,
        "FilterBankLog",
        [gained],
        [((channels,), "i2")],
        input_correction_bits=3,
        output_scale=1600,
    )
    stacked, _ = signal(
        writer,
        "Stacker",
        [logs],
        [((channels * frames,), "i2"), ((), "?")],
        num_channels=channels,
        stacker_left_context=frames - 1,
        stacker_right_context=0,
        stacker_step=1,
    )
    _to_int8(writer, stacked, channels * frames)


def subtraction(channels: int, clamping: bool = False) -> dict[str, Any]:
    """Options of SignalFilterBankSpectralSubtraction."""
    return {
        "alternate_one_minus_smoothing": 15401,
        "alternate_smoothing": 983,
        "clamping": clamping,
        "min_signal_remaining": 819,
        "num_channels": channels,
        "one_minus_smoothing": 15975,
        "smoothing": 409,
        "smoothing_bits": 10,
        "spectral_subtraction_bits": 14,
    }


def _to_int8(writer: Writer, x: int, size: int) -> None:
    """x / 64 - 128, in int8."""
    wide = writer.tensor((size,), "i4")
    writer.operator("CAST", [x], wide, "CastOptions", inner=True)
    for operator, by, options in (("DIV", 64, "DivOptions"), ("ADD", -128, "AddOptions")):
        result = writer.tensor((size,), "i4")
        number = constant(writer, np.array(by, np.int32))
        writer.operator(operator, [wide, number], result, options, inner=True)
        wide = result
    features = writer.tensor((size,), "i1")
    writer.operator("CAST", [wide], features, "CastOptions")


def round_trip(writer: Writer, dtype: str, rows: int, length: int) -> None:
    """Samples to spectra and back, overlapping by a half where there is an operator for that."""
    x = writer.input((rows, length), dtype)
    options = {"T": TYPE_CODES[dtype], "fft_length": length}
    (spectra,) = signal(writer, "Rfft", [x], [((rows, length + 2), dtype)], inner=False, **options)
    (samples,) = signal(writer, "Irfft", [spectra], [((rows, length), dtype)], inner=False, **options)
    if dtype != "i4":
        step = length // 2
        options = {"T": TYPE_CODES[dtype], "frame_step": step}
        signal(writer, "OverlapAdd", [samples], [((rows * step,), dtype)], inner=False, **options)


def delay(writer: Writer, rows: int, samples: int, length: int) -> None:
    x = writer.input((rows, samples), "i2")
    signal(writer, "Delay", [x], [((rows, samples), "i2")], inner=False, delay_length=length)
