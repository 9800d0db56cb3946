"""TFLM's signal operators: its wheel over several calls, state that a reset clears, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests.needs import need_modules
from tests.signal_models import gains, hann, signal, subtraction, triangles
from tests.tflite_writer import Array, Writer

CALLS = 14
Type = tuple[Sequence[int], str]


def model(
    name: str, inputs: Sequence[Type | Array], outputs: Sequence[Type], **options: Any
) -> tuple[bytes, list[Type]]:
    """A file of one operator, and the types of its inputs; arrays are constants."""
    w = Writer()
    tensors: list[int] = []
    given: list[Type] = []
    for item in inputs:
        if isinstance(item, tuple):
            tensors.append(w.input(*item))
            given.append(item)
        else:
            tensors.append(w.tensor(item.shape, item.dtype.str[1:], data=item))
    signal(w, name, tensors, outputs, inner=False, **options)
    return w.pack(), given


def operand(rng: np.random.Generator, type: Type, call: int) -> Array:
    """Extremes first; then numbers of any count of bits."""
    shape, dtype = type[0], np.dtype(type[1])
    if dtype.kind == "f":
        return rng.normal(0, 10.0 ** rng.uniform(-3, 3), shape).astype(dtype)
    limits = np.iinfo(dtype)
    if call < 2:
        return np.full(shape, (limits.max, limits.min)[call], dtype)
    full = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    drawn = (full >> rng.integers(0, limits.bits, shape, dtype)).astype(dtype)
    return np.where(rng.random(shape) < (0.0, 0.1)[call % 2], np.array(limits.min, dtype), drawn)


WINDOW = ((2, 3, 16), "i2")
ROW = ((40,), "u4")
ENERGIES = ((41,), "u4")
BANK = triangles(9, 41)
SWAPPED = [-BANK[0], BANK[1] * 7, *BANK[2:]]
FRAMERS = [(6, 2, 1), (7, 3, 2), (5, 5, 2), (12, 2, 3), (40, 16, 1)]
STACKERS = [(1, 1, 1), (0, 2, 1), (2, 0, 1), (0, 0, 1), (3, 2, 3), (2, 0, 3), (3, 4, 2)]

Case = tuple[str, list[Any], list[Type], dict[str, Any]]
CASES: dict[str, Case] = {
    **{
        f"window {shift}": ("Window", [WINDOW, hann(16)], [WINDOW], {"shift": shift})
        for shift in (0, 12, 15, 31)
    },
    "computed window": ("Window", [WINDOW, ((16,), "i2")], [WINDOW], {"shift": 13}),
    "auto scale": ("FftAutoScale", [((33,), "i2")], [((33,), "i2"), ((), "i4")], {}),
    "energy": ("Energy", [((34,), "i2")], [((17,), "u4")], {"start_index": 0, "end_index": 17}),
    "filter bank": ("FilterBank", [ENERGIES, *BANK], [((9,), "u8")], {"num_channels": 9}),
    "negative weights": ("FilterBank", [ENERGIES, *SWAPPED], [((9,), "u8")], {"num_channels": 9}),
    "square root": ("FilterBankSquareRoot", [((50,), "u8"), ((), "i4")], [((50,), "u4")], {}),
    "subtraction": ("FilterBankSpectralSubtraction", [ROW], [ROW, ROW], subtraction(40)),
    "clamped subtraction": (
        "FilterBankSpectralSubtraction",
        [ROW],
        [ROW, ROW],
        subtraction(40, clamping=True),
    ),
    "subtraction, other bits": (
        "FilterBankSpectralSubtraction",
        [ROW],
        [ROW, ROW],
        subtraction(40) | {"smoothing_bits": 3, "spectral_subtraction_bits": 40},
    ),
    **{
        f"gain control {shift}": ("PCAN", [ROW, ROW, gains()], [ROW], {"snr_shift": shift})
        for shift in (0, 6, 40)
    },
    **{
        f"logarithm {bits} {scale}": (
            "FilterBankLog",
            [ROW],
            [((40,), "i2")],
            {"input_correction_bits": bits, "output_scale": scale},
        )
        for bits, scale in ((3, 64), (0, 1600), (31, -5), (1, 1 << 30))
    },
    **{
        f"framer {size} {step} {count} {prefill}": (
            "Framer",
            [((2, count * step), "i2")],
            [((2, count, size), "i2"), ((), "?")],
            {"frame_size": size, "frame_step": step, "prefill": prefill},
        )
        for size, step, count in FRAMERS
        for prefill in (False, True)
    },
    "framer with gaps": (
        "Framer",
        [((2, 10), "i2")],
        [((2, 2, 3), "i2"), ((), "?")],
        {"frame_size": 3, "frame_step": 5, "prefill": False},
    ),
    **{
        f"stacker {left} {right} {step}": (
            "Stacker",
            [((4,), "i2")],
            [((4 * (left + right + 1),), "i2"), ((), "?")],
            {
                "num_channels": 4,
                "stacker_left_context": left,
                "stacker_right_context": right,
                "stacker_step": step,
            },
        )
        for left, right, step in STACKERS
    },
    **{
        f"delay {length}": ("Delay", [((2, 5), "i2")], [((2, 5), "i2")], {"delay_length": length})
        for length in (0, 3, 5, 17)
    },
    **{
        f"overlap add {dtype} {step}": (
            "OverlapAdd",
            [((2, 3, 6), dtype)],
            [((2, 3 * step), dtype)],
            {"T": code, "frame_step": step},
        )
        for dtype, code in (("i2", 7), ("f4", 0))
        for step in (1, 3, 4, 6)
    },
    **{
        f"{name} {dtype} {length}": (
            name,
            [((2, length - 2 if name == "Rfft" else length + 2), dtype)],
            [((2, length + 2 if name == "Rfft" else length), dtype)],
            {"T": code, "fft_length": length},
        )
        for name in ("Rfft", "Irfft")
        for dtype, code in (("i2", 7), ("i4", 2), ("f4", 0))
        for length in (4, 6, 32, 60, 150, 512)
    },
}


@pytest.mark.parametrize("name", CASES)
def test_as_tflm(name: str) -> None:
    """Bit for bit, also after a reset; results that TFLM calls not valid are what its memory holds."""
    need_modules("tflite_micro")
    from tflite_micro import runtime

    operator, inputs, outputs, options = CASES[name]
    data, types = model(operator, inputs, outputs, **options)
    ours, rng = Interpreter(import_model(data)), np.random.default_rng(len(name))
    for calls in (CALLS, 5):
        theirs = runtime.Interpreter.from_bytes(data, arena_size=1 << 20)
        for call in range(calls):
            arrays = [operand(rng, type, call) for type in types]
            if operator == "FilterBankSquareRoot":
                arrays = [roots(rng, arrays[0], call), np.array(call % 15, np.int32)]
            for index, array in enumerate(arrays):
                theirs.set_input(array, index)
            theirs.invoke()
            compare(operator, ours.run(*arrays), [theirs.get_output(k) for k in range(len(outputs))])
        ours.reset()


def roots(rng: np.random.Generator, numbers: Array, call: int) -> Array:
    """Numbers beside squares, and half way to the next one, in every second call."""
    if call % 2:
        return numbers
    root = rng.integers(0, 1 << 32, numbers.shape, np.uint64) >> np.uint64(rng.integers(0, 20))
    near = rng.integers(0, 3, numbers.shape, np.uint64) - np.uint64(1)
    return root * root + near + (root if call % 4 else np.uint64(0))


def compare(operator: str, ours: Sequence[Array], theirs: Sequence[Array]) -> None:
    for mine, other in reversed(list(zip(ours, theirs, strict=True))):
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())
        else:
            np.testing.assert_array_equal(mine, other)
        if operator in ("Framer", "Stacker") and mine.dtype == bool and not mine:
            return


def test_the_lowest_sample_is_not_the_largest() -> None:
    """While a maximum is looked for, 32768 is -32768: what follows the last one counts."""
    data, _ = model("FftAutoScale", [((4,), "i2")], [((4,), "i2"), ((), "i4")])
    result, bits = Interpreter(import_model(data)).run(np.array([9, -32768, 3, -5], np.int16))
    assert (int(bits), result.tolist()) == (12, [(9 << 12) - 65536, 0, 3 << 12, -5 << 12])


def test_energies_that_are_not_wanted_are_zero() -> None:
    data, _ = model("Energy", [((8,), "i2")], [((4,), "u4")], start_index=1, end_index=3)
    (result,) = Interpreter(import_model(data)).run(np.arange(1, 9, dtype=np.int16))
    assert result.tolist() == [0, 9 + 16, 25 + 36, 0]


def test_frames_that_are_not_full() -> None:
    """Their newest samples stand behind zeros."""
    options = {"frame_size": 4, "frame_step": 2, "prefill": False}
    data, _ = model("Framer", [((2,), "i2")], [((1, 4), "i2"), ((), "?")], **options)
    interpreter = Interpreter(import_model(data))
    frame, full = interpreter.run(np.array([1, 2], np.int16))
    assert (frame.tolist(), bool(full)) == ([[0, 0, 1, 2]], False)
    frame, full = interpreter.run(np.array([3, 4], np.int16))
    assert (frame.tolist(), bool(full)) == ([[1, 2, 3, 4]], True)


def test_scales_of_results_stay() -> None:
    """Features in int16 with a scale, as a network wants them."""
    w = Writer()
    x, logs = w.input((8,), "u4"), w.tensor((8,), "i2", 0.01)
    custom = bytes(flexbuffers.Dumps({"input_correction_bits": 0, "output_scale": 100}))
    w.operator("SignalFilterBankLog", [x], logs, custom=custom, inner=True)
    w.operator("DEQUANTIZE", [logs], w.tensor((8,), "f4"))
    graph = import_model(w.pack())
    (result,) = Interpreter(graph).run(np.full(8, 1 << 20, np.uint32))
    np.testing.assert_allclose(result, np.log(2.0**20), atol=0.01)


SAMPLES = ((32,), "i2")
REFUSED: list[tuple[str, list[Any], list[Type], dict[str, Any], str]] = [
    ("Window", [SAMPLES, hann(12)], [SAMPLES], {"shift": 12}, "frames as long as the weights"),
    ("Window", [SAMPLES, hann(16)], [SAMPLES], {"shift": 32}, r"the shift must be in \[0, 32\)"),
    ("Window", [SAMPLES, hann(16)], [SAMPLES], {"shift": 1, "more": 2}, "map of integers, shift"),
    ("FftAutoScale", [SAMPLES], [SAMPLES], {}, "it must have 2 outputs; it has 1"),
    ("Rfft", [SAMPLES], [((30,), "i2")], {"T": 7, "fft_length": 28}, "twice a product of 2, 3 and 5"),
    ("Rfft", [SAMPLES], [((18,), "i2")], {"T": 7, "fft_length": 16}, "at least the number of samples, 32"),
    (
        "Rfft",
        [SAMPLES],
        [((34,), "i2")],
        {"T": 2, "fft_length": 32},
        "T must be the type of its input, int16",
    ),
    ("Rfft", [SAMPLES], [((34,), "i4")], {"T": 7, "fft_length": 32}, "output 0 must be int16; it is int32"),
    ("Irfft", [SAMPLES], [SAMPLES], {"T": 7, "fft_length": 32}, "a spectrum must have 34 elements"),
    ("Energy", [SAMPLES], [((16,), "u4")], {"start_index": 3, "end_index": 17}, r"must be in \[0, 16\]"),
    (
        "FilterBank",
        [((20,), "u4"), *BANK],
        [((9,), "u8")],
        {"num_channels": 9},
        "must be within its 20 energies",
    ),
    (
        "FilterBank",
        [ENERGIES, BANK[0][:9], BANK[1][:9], *BANK[2:]],
        [((9,), "u8")],
        {"num_channels": 9},
        "must be within its 9 weights",
    ),
    ("FilterBank", [ENERGIES, *BANK], [((8,), "u8")], {"num_channels": 8}, "8 channels need 9 starts"),
    (
        "FilterBank",
        [ENERGIES, *BANK[:4], 0 * BANK[4]],
        [((9,), "u8")],
        {"num_channels": 9},
        "one of its bands must contain energies",
    ),
    (
        "Stacker",
        [SAMPLES],
        [((96,), "i2"), ((), "?")],
        {
            "num_channels": 32,
            "stacker_left_context": (1 << 31) - 1,
            "stacker_right_context": (1 << 31) - 1,
            "stacker_step": 1,
        },
        "a tensor has at most 16777216 elements",
    ),
    (
        "FilterBank",
        [ENERGIES, *BANK[:4], ((10,), "i2")],
        [((9,), "u8")],
        {"num_channels": 9},
        "starts and widths must be constant",
    ),
    (
        "FilterBankSpectralSubtraction",
        [ROW],
        [ROW, ROW],
        subtraction(9),
        "its input must have num_channels elements, 9",
    ),
    (
        "FilterBankSpectralSubtraction",
        [ROW],
        [ROW, ROW],
        subtraction(40) | {"smoothing_bits": 32},
        r"smoothing_bits must be in \[0, 32\)",
    ),
    ("PCAN", [ROW, ROW, gains()[:124]], [ROW], {"snr_shift": 6}, r"gain_lut must be int16 \[125\]"),
    ("PCAN", [ROW, ROW, gains()], [ROW], {"snr_shift": -1}, r"snr_shift must be in \[0, 64\)"),
    (
        "FilterBankLog",
        [ROW],
        [((40,), "i2")],
        {"input_correction_bits": 40, "output_scale": 1},
        r"input_correction_bits must be in \[0, 32\)",
    ),
    (
        "Framer",
        [SAMPLES],
        [((1, 8), "i2"), ((), "?")],
        {"frame_size": 8, "frame_step": 5, "prefill": False},
        "a frame_step that divides the number of samples",
    ),
    (
        "Framer",
        [SAMPLES],
        [((32, 4), "i2"), ((), "?")],
        {"frame_size": (1 << 31) - 1, "frame_step": 1, "prefill": True},
        "a tensor has at most 16777216 elements",
    ),
    (
        "Stacker",
        [SAMPLES],
        [((96,), "i2"), ((), "?")],
        {"num_channels": 32, "stacker_left_context": 1, "stacker_right_context": 1, "stacker_step": 4},
        r"a step in \[1, 3\]",
    ),
    ("Delay", [SAMPLES], [SAMPLES], {"delay_length": -1}, "must not be negative; it is -1"),
    (
        "OverlapAdd",
        [((2, 8), "i2")],
        [((18,), "i2")],
        {"T": 7, "frame_step": 9},
        r"a frame_step in \[1, size\]",
    ),
    ("OverlapAdd", [((2, 8), "i4")], [((8,), "i4")], {"T": 2, "frame_step": 4}, "of int16 or float32"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused(number: int) -> None:
    operator, inputs, outputs, options, reason = REFUSED[number]
    data, _ = model(operator, inputs, outputs, **options)
    with pytest.raises(UnsupportedModelError, match=reason):
        import_model(data)


def test_options_of_any_bytes() -> None:
    """A refusal, or what they say: nothing else comes out of them, and at once."""
    whole = bytes(flexbuffers.Dumps(subtraction(40)))
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(120):
        data = bytearray(whole[: int(rng.integers(1, len(whole)))] if trial % 3 == 0 else whole)
        for position in rng.integers(0, len(data), trial % 4):
            data[-1 - int(position) // (1 + trial % 5)] = int(rng.integers(256))
        w = Writer()
        x = w.input(*ROW)
        outputs = [w.tensor(*ROW), w.tensor(*ROW)]
        w.operator("SignalFilterBankSpectralSubtraction", [x], outputs, custom=bytes(data))
        try:
            import_model(w.pack())
        except UnsupportedModelError:
            refused += 1
    assert 40 < refused < 120
