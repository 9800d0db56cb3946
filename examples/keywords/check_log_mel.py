"""Hold the features of log_mel.c, in integers, against those of log_mel.py, in floating point.

    python check_log_mel.py build/log_mel.so build/host/keywords.h

Both are the network's int8 input. For many kinds of sound, prints how many of the values differ and by how
much. Exit status 1: some differ by more than 1, or more than one in a hundred differ at all.
"""

import ctypes
import re
import sys
import wave
from pathlib import Path

import numpy as np
from log_mel import BANDS, COLUMNS, FFT, HOP, RATE, WINDOW, features, quantize

HERE = Path(__file__).resolve().parent
SECONDS = 3


def to_int16(samples):
    return np.clip(np.rint(samples), -32768, 32767).astype(np.int16)


def wav_samples(file):
    with wave.open(str(file)) as source:
        return np.frombuffer(source.readframes(source.getnframes()), "<i2")


def signals():
    """Sounds by name: int16 arrays."""
    rng = np.random.default_rng(0)
    length = SECONDS * RATE
    time = np.arange(length) / RATE
    white = rng.normal(size=length)
    chirp = np.sin(2 * np.pi * (20 * time + (8000 - 20) / (2 * SECONDS) * time**2))
    speech = np.concatenate([wav_samples(file) for file in sorted(HERE.glob("test/*.wav"))])
    yield "silence", np.zeros(length, np.int16)
    yield "speech", speech
    yield "speech, 40 dB quieter", to_int16(speech * 0.01)
    yield "speech, clipped", to_int16(speech * 20.0)
    for level in (0.5, 3, 100, 3000, 30000):
        yield f"white noise, {level:g} rms", to_int16(level * white)
    for value in (1, -1, 1000, 32767, -32768):
        yield f"constant {value}", np.full(length, value, np.int16)
    for frequency in (50, 125, 440, 1000, 3999, 7777):
        yield f"sine, {frequency} Hz, full scale", to_int16(32767 * np.sin(2 * np.pi * frequency * time))
    yield "sine, 440 Hz, amplitude 1", to_int16(np.sin(2 * np.pi * 440 * time))
    yield "sine, 440 Hz, clipped", to_int16(1e6 * np.sin(2 * np.pi * 440 * time))
    yield "chirp, full scale", to_int16(32767 * chirp)
    yield "chirp, amplitude 30", to_int16(30 * chirp)
    yield "single clicks", np.where(np.arange(length) % 5000 == 0, -32768, 0).astype(np.int16)
    yield "all bits at random", rng.integers(-32768, 32768, length).astype(np.int16)
    yield "extremes at random", rng.choice([-32768, 32767], length).astype(np.int16)


class State(ctypes.Structure):
    """log_mel_state of log_mel.h."""

    _fields_ = (
        ("spectrum", ctypes.c_int32 * FFT),
        ("samples", ctypes.c_int16 * WINDOW),
        ("columns", ctypes.c_int8 * (COLUMNS * BANDS)),
        ("oldest", ctypes.c_uint32),
    )


def fixed_point(library, samples):
    """Columns int8 [len(samples) // HOP, BANDS] as log_mel.c computes them, block by block."""
    state = State()
    library.log_mel_init(ctypes.byref(state))
    library.log_mel_newest.restype = ctypes.POINTER(ctypes.c_int8 * BANDS)
    columns = []
    for block in samples[: len(samples) // HOP * HOP].reshape(-1, HOP):
        library.log_mel_push(ctypes.byref(state), (ctypes.c_int16 * HOP)(*block.tolist()))
        columns.append(list(library.log_mel_newest(ctypes.byref(state)).contents))
    return np.array(columns)


def quantization(header):
    """Scale and zero point of the network's input, from keywords.h."""
    text = Path(header).read_text(encoding="utf-8")
    scale = re.search(r"KEYWORDS_INPUT_0_SCALE (\S+)f$", text, re.M)[1]
    zero_point = re.search(r"KEYWORDS_INPUT_0_ZERO_POINT \(?(-?\d+)", text)[1]
    return float(np.float32(scale)), int(zero_point)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    library, scale = ctypes.CDLL(str(Path(sys.argv[1]).resolve())), quantization(sys.argv[2])
    total = different = largest = 0
    print(f"{'sound':28} {'values':>7} {'differ':>7} {'by':>2}")
    for name, samples in signals():
        difference = np.abs(fixed_point(library, samples) - quantize(features(samples), *scale).astype(int))
        print(f"{name:28} {difference.size:7} {np.count_nonzero(difference):7} {difference.max():2}")
        total += difference.size
        different += np.count_nonzero(difference)
        largest = max(largest, int(difference.max()))
    print(f"{'all':28} {total:7} {different:7} {largest:2}, {different / total:.3%}")
    return 0 if largest <= 1 and different <= total / 100 else 1


if __name__ == "__main__":
    sys.exit(main())
