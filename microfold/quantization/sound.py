"""Folders of WAV files as sample data: windows of the sound, for models that take the samples themselves."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from microfold.host.ports import Port
from microfold.ir.types import Array
from microfold.quantization.data import Data, refuse, value_faults
from microfold.quantization.preprocessing import Preprocessing


class SoundData(Struct, frozen=True, eq=False):
    """Windows of WAV files, without overlap.

    Attributes:
        windows: file and first sound sample of each window.
    """

    folder: Path
    windows: tuple[tuple[Path, int], ...]
    port: Port
    rule: Preprocessing

    @property
    def count(self) -> int:
        return len(self.windows)

    def read(self, chosen: Sequence[int]) -> tuple[Array, ...]:
        length = int(np.prod(self.port.shape))
        found: list[Array] = []
        for path, start in (self.windows[index] for index in chosen):
            with wave.open(str(path), "rb") as file:
                file.setpos(start)
                found.append(_real(file.readframes(length), file.getsampwidth()))
        array = np.stack(found).reshape(len(found), *self.port.shape)
        array = self.rule.apply(array) if self.rule.std else array
        refuse(self.folder, value_faults(array, self.rule))
        return (array,)


def _real(data: bytes, width: int) -> Array:
    """Return PCM samples as numbers from -1 to 1: the integers divided by 2^(bits - 1)."""
    if width == 1:
        return ((np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128).astype(np.float32)
    octets = np.frombuffer(data, np.uint8).reshape(-1, width).astype(np.int64)
    value = (octets << (8 * np.arange(width, dtype=np.int64))).sum(axis=1)
    limit = 1 << (8 * width - 1)
    return ((value - 2 * limit * (value >= limit)) / limit).astype(np.float32)


def open_sounds(folder: Path, files: Sequence[Path], port: Port, rule: Preprocessing) -> Data:
    """Return the windows of all WAV files of a folder; errors as for `open_data`."""
    length = int(np.prod(port.shape))
    problems: list[str] = []
    if length != max(port.shape, default=0) or port.dtype != np.float32:
        problems.append(
            f".wav files fit an input float32 with a single axis of sound samples; it is {port.type}: "
            "compute the features as your program does, and save them as .npy"
        )
    windows: list[tuple[Path, int]] = []
    rates: dict[int, str] = {rule.sample_rate: "the model's metadata"} if rule.sample_rate else {}
    for path in files if not problems else ():
        try:
            with wave.open(str(path), "rb") as file:
                channels, frames, rate = file.getnchannels(), file.getnframes(), file.getframerate()
        except (OSError, EOFError, wave.Error) as error:
            problems.append(f"{path.name} must be a .wav file with PCM samples; it is not: {error}")
            continue
        first = rates.setdefault(rate, path.name) if not rates else next(iter(rates.values()))
        if rate not in rates:
            problems.append(
                f"{path.name} must have {next(iter(rates))} samples per second, as {first}; it has {rate}"
            )
        if channels != 1:
            problems.append(f"{path.name} must have one channel; it has {channels}")
        if frames < length:
            problems.append(f"{path.name} must have {length} sound samples, as the input; it has {frames}")
        windows += [(path, start) for start in range(0, frames - length + 1, length)]
    refuse(folder, problems)
    return SoundData(folder, tuple(windows), port, rule)
