"""Sample data for calibration and comparison: arrays, array files, and the choice of a reader."""

from __future__ import annotations

import csv
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from msgspec import Struct

from microfold.errors import InputError, listed
from microfold.host.ports import Port
from microfold.ir.types import Array
from microfold.quantization.preprocessing import Preprocessing
from microfold.support.arrays import parse_npy
from microfold.support.files import LARGEST_INPUT, read_file

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".webp")
SOUNDS = (".wav",)
# Problems that a message lists.
_MOST_LISTED = 10
# A path, an array [samples, shape of the input], or such an array for each input, by name or in order.
SampleSource: TypeAlias = "Path | Array | Sequence[Array] | Mapping[str, Array]"
# Subject of messages about arrays in memory.
_UNNAMED = "the array"
_FORMATS = ".npy, .npz, .csv, or a folder of images or .wav files"


class Data(Protocol):
    """Samples in a file or folder; a caller reads some of them."""

    @property
    def count(self) -> int:
        """Number of samples."""
        ...

    def read(self, chosen: Sequence[int]) -> tuple[Array, ...]:
        """Return an array [chosen samples, shape of the input] for each input, in the types of the inputs."""
        ...


class ArrayData(Struct, frozen=True, eq=False):
    """Samples in memory: an array [samples, shape of the input] for each input."""

    arrays: tuple[Array, ...]

    @property
    def count(self) -> int:
        return len(self.arrays[0])

    def read(self, chosen: Sequence[int]) -> tuple[Array, ...]:
        return tuple(array[np.asarray(chosen, np.int64)] for array in self.arrays)


def open_data(source: SampleSource, inputs: Sequence[Port], preprocessing: Sequence[Preprocessing]) -> Data:
    """Return the samples in arrays, or in a file or folder.

    Args:
        inputs: inputs of the model, for which samples are needed.
        preprocessing: conversion of raw values, for each input.

    Raises:
        InputError: the data do not fit the inputs. The message lists all problems.
    """
    problems = [f"{port.name!r}: {fault}" for port, fault in _faults(inputs, preprocessing) if fault]
    refuse(source if isinstance(source, Path) else _UNNAMED, problems)
    if not isinstance(source, Path):
        return ArrayData(_fit(_UNNAMED, _named(source), inputs, preprocessing))
    path = source
    if path.is_dir():
        from microfold.quantization.images import open_images
        from microfold.quantization.sound import open_sounds

        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in (*IMAGES, *SOUNDS) and p.is_file())
        kinds = {p.suffix.lower() in SOUNDS for p in files}
        if len(kinds) != 1:
            found = "both" if kinds else "none"
            raise InputError(f"a folder of data must have images or .wav files; {path} has {found}")
        if len(inputs) != 1:
            raise InputError(
                f"a folder of data fits a model with one input; it has {len(inputs)}: "
                "save all inputs in one .npz"
            )
        opened = open_sounds if kinds == {True} else open_images
        return opened(path, files, inputs[0], preprocessing[0])
    if path.suffix == ".csv":
        arrays = {"": _parse_csv(read_file(path), path)}
    elif path.suffix == ".npy":
        arrays = {"": parse_npy(read_file(path), str(path))}
    elif path.suffix == ".npz":
        arrays = _parse_npz(read_file(path), path)
    else:
        raise InputError(f"--data must be {_FORMATS}; it is {path}")
    return ArrayData(_fit(path, arrays, inputs, preprocessing))


def _faults(inputs: Sequence[Port], preprocessing: Sequence[Preprocessing]) -> list[tuple[Port, str]]:
    pairs = zip(inputs, preprocessing, strict=True)
    return [(port, each.fault(port.shape[-1] if port.shape else 1)) for port, each in pairs]


def refuse(source: Path | str, problems: Sequence[str]) -> None:
    """Raise `InputError` with all problems of the data, if there are any."""
    if problems:
        more = len(problems) - _MOST_LISTED
        lines = listed([*problems[:_MOST_LISTED], *([f"{more} more"] if more > 0 else [])])
        raise InputError(f"{source} does not fit the model:\n{lines}")


def _named(source: object) -> dict[str, Array]:
    """Return arrays by name, or by position."""
    if _is_plain(source):
        return {"": np.asarray(source)}
    found: dict[object, object] = {}
    if isinstance(source, Mapping):
        found = {**source}
    elif isinstance(source, list | tuple):
        found = {f"array {index}": array for index, array in enumerate(source)}
    wrong = [each for each in found.values() if not _is_plain(each)]
    if wrong or not found:
        kind = type(wrong[0] if wrong else source).__name__
        raise InputError(
            "data must be a path, an array [samples, shape of the input], or an array for each input, in "
            f"order or by the inputs' names; got {kind}: convert the samples with numpy.asarray"
        )
    return {str(name): np.asarray(array) for name, array in found.items()}


def _is_plain(source: object) -> bool:
    """Return whether a value is a numpy array without a mask."""
    return isinstance(source, np.ndarray) and not isinstance(source, np.ma.MaskedArray)


def _parse_npz(data: bytes, path: Path) -> dict[str, Array]:
    """Return the arrays of an archive by name, in its order."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
            size = sum(entry.file_size for entry in entries)
            if size > LARGEST_INPUT:
                raise InputError(f"arrays may have {LARGEST_INPUT:,} bytes; those in {path} have {size:,}")
            found: dict[str, Array] = {}
            for entry in entries:
                with archive.open(entry) as file:
                    content = file.read(entry.file_size + 1)
                found[entry.filename[:-4]] = parse_npy(content, f"{entry.filename} in {path}")
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        EOFError,
        OSError,
        ValueError,
        RuntimeError,
    ) as error:
        raise InputError(f"{path} is not a readable .npz file ({error}); save it with numpy.savez") from None
    return found


def _parse_csv(data: bytes, path: Path) -> Array:
    """Return the numbers of a file with one sample per line. The first line may have names."""
    try:
        lines = [*csv.reader(StringIO(data.decode("utf-8-sig")))]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a readable CSV file ({error}); save numbers as UTF-8") from None
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line]
    if numbered and not all(map(_is_number, numbered[0][1])):
        numbered = numbered[1:]
    width = len(numbered[0][1]) if numbered else 0
    problems = [
        f"line {number} must have {width} numbers, as the first one has; it has {len(line)}"
        for number, line in numbered
        if len(line) != width
    ]
    problems += [
        f"line {number}, column {column} must be a number; it is {cell[:40]!r}"
        for number, line in numbered
        for column, cell in enumerate(line, 1)
        if not _is_number(cell)
    ]
    refuse(path, problems)
    return np.array([[float(cell) for cell in line] for _, line in numbered], np.float64).reshape(-1, width)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _fit(
    source: Path | str,
    arrays: Mapping[str, Array],
    inputs: Sequence[Port],
    preprocessing: Sequence[Preprocessing],
) -> tuple[Array, ...]:
    """Return the samples for each input: the array of its name, or else the arrays in their order."""
    names = [port.name for port in inputs]
    if len(arrays) != len(inputs):
        have = ", ".join(arrays) if "" not in arrays else "one"
        refuse(source, [f"there must be an array for each of {', '.join(names)}; got {have}"])
    chosen = [arrays[name] for name in names] if set(names) == set(arrays) else [*arrays.values()]
    problems: list[str] = []
    found: list[Array] = []
    for port, array, rule in zip(inputs, chosen, preprocessing, strict=True):
        fitted, faults = fit_array(array, port, rule)
        problems += [f"{port.name!r}: {fault}" for fault in faults]
        found += [] if fitted is None else [fitted]
    counts = [len(array) for array in found]
    if not problems and len(set(counts)) > 1:
        problems.append(f"all inputs must have the same number of samples; got {counts}")
    refuse(source, problems)
    return tuple(found)


def fit_array(array: Array, port: Port, rule: Preprocessing) -> tuple[Array | None, list[str]]:
    """Return samples [samples, shape of the input] in the type of the input, and all problems.

    Args:
        array: one sample, or several along the first axis. The first axis of the input, if its extent is 1,
            and the shape of a sample as a whole may be missing (a flat sample).
    """
    problems: list[str] = []
    shaped = _shaped(array, port.shape)
    if shaped is None:
        want = ",".join(map(str, ("N", *port.shape)))
        problems.append(f"the shape must be [{want}]; it is {list(array.shape)}: reshape the array")
    kind, dtype = array.dtype.kind, port.dtype
    if dtype.kind == "f":
        if kind not in "iuf":
            problems.append(f"the type must be a number; it is {array.dtype}: convert it with astype")
        elif kind in "iu" and not rule.std:
            problems.append(
                f"the input is {dtype}, the data are {array.dtype}, and the model does not state how they "
                "are converted: add --mean and --std, (x - mean) / std; 0 and 1 keep the values"
            )
    elif kind not in "iub" or array.dtype != dtype:
        problems.append(f"the type must be {dtype}; it is {array.dtype}: convert it with astype")
    if problems or shaped is None:
        return None, problems
    if not len(shaped):
        return None, ["there must be samples; there are none"]
    if dtype.kind == "f":
        raw = kind in "iu" or rule.forced
        shaped = rule.apply(shaped) if raw and rule.std else shaped.astype(np.float32)
    return shaped, value_faults(shaped, rule)


def _shaped(array: Array, shape: tuple[int, ...]) -> Array | None:
    """Return the array as [samples, shape], or None if it does not have such a shape."""
    bare = shape[1:] if shape[:1] == (1,) else shape
    if array.shape == shape:
        return array.reshape(1, *shape)
    flat = (int(np.prod(shape)),)
    if any(array.shape[1:] == each for each in (shape, bare, flat)) and array.ndim:
        return array.reshape(len(array), *shape)
    return None


def value_faults(samples: Array, rule: Preprocessing) -> list[str]:
    """Return the problems of values: not finite, outside of the limits that the model states, or constant."""
    if samples.dtype.kind != "f":
        return []
    finite = np.isfinite(samples)
    if not finite.all():
        first = int(np.argwhere(~finite)[0][0])
        return [
            f"all values must be finite; {int((~finite).sum()):,} are not, the first one in sample {first}"
        ]
    low, high = float(samples.min()), float(samples.max())
    faults: list[str] = []
    if (rule.low and low < min(rule.low)) or (rule.high and high > max(rule.high)):
        limits = f"{min(rule.low, default='-inf')} and {max(rule.high, default='inf')}"
        faults.append(
            f"the model's metadata state values between {limits}; the data, after preprocessing, are between "
            f"{low:g} and {high:g}: check the preprocessing"
        )
    if low == high:
        faults.append(f"values must differ, because their range sets the scales; all are {low:g}")
    return faults
