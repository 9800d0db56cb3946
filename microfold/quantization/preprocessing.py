"""Conversion of raw values (pixels, integers) to the numbers that an input expects.

The model's metadata can state it. Format of the metadata, a flatbuffer in the file:
https://github.com/tensorflow/tflite-support/blob/master/tensorflow_lite_support/metadata/metadata_schema.fbs
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers.number_types as types
import numpy as np
import tflite
from flatbuffers.table import Table
from msgspec import Struct

from microfold.errors import InputError, ModelFormatError
from microfold.frontend.raw import malformed_as_error
from microfold.ir.types import Array

_METADATA = b"TFLITE_METADATA"
# Maximum number of inputs that are read from the metadata, and of values of a list.
_MOST = 1024
# Members of unions in the schema.
_NORMALIZATION, _AUDIO = 1, 4


class Preprocessing(Struct, frozen=True):
    """Expected values of one input.

    Attributes:
        mean, std: raw values x become ``(x - mean) / std``: one number each, or one for each channel. Empty
            if they are not known.
        low, high: limits of the input's values; empty if they are not known.
        sample_rate: samples of sound per second; 0 if it is not known.
        source: the origin of mean and std, for messages.
        forced: whether mean and std are also applied to float data.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    sample_rate: int = 0
    source: str = ""
    forced: bool = False

    def apply(self, raw: Array) -> Array:
        """Return the float32 input for raw values [..., channels]."""
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        return ((raw.astype(np.float32) - mean) / std).astype(np.float32)

    def fault(self, channels: int) -> str:
        """Return the reason why mean and std do not fit an input with these channels, or ""."""
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (0, 1, channels):
                return (
                    f"{name} must have one value, or one for each of {channels} channels; "
                    f"{self.source} has {len(values)}"
                )
        if not np.isfinite([*self.mean, *self.std]).all() or 0 in self.std:
            return f"mean and std must be finite, and std not 0; {self.source} has {self.mean} and {self.std}"
        return ""


def with_options(found: Preprocessing, mean: Sequence[float], std: Sequence[float]) -> Preprocessing:
    """Return the preprocessing with the user's mean and std, if there are any.

    Raises:
        InputError: only one of both is given.
    """
    if bool(mean) != bool(std):
        missing = "--std" if mean else "--mean"
        raise InputError(f"--mean and --std belong together; {missing} is missing: 0 and 1 keep the values")
    if not mean:
        return found
    return Preprocessing(
        tuple(mean), tuple(std), found.low, found.high, found.sample_rate, "--mean and --std", forced=True
    )


def read_preprocessing(data: bytes, inputs: int) -> tuple[tuple[Preprocessing, ...], str]:
    """Return the preprocessing of each input by the metadata of a model, and why it is ignored, or "".

    Args:
        data: a file that microfold has imported. Its metadata are not trusted.
        inputs: number of the model's inputs.
    """
    unknown = (Preprocessing(),) * inputs
    try:
        with malformed_as_error("the metadata"):
            model = tflite.Model.GetRootAsModel(data, 0)
            for index in range(min(model.MetadataLength(), _MOST)):
                entry: Any = model.Metadata(index)
                if entry.Name() == _METADATA:
                    buffer: Any = model.Buffers(entry.Buffer())
                    return _read(buffer.DataAsNumpy().tobytes(), inputs), ""
    except ModelFormatError:
        return unknown, "the metadata of the model cannot be read"
    return unknown, ""


def _read(data: bytes, inputs: int) -> tuple[Preprocessing, ...]:
    root = Table(data, int.from_bytes(data[:4], "little"))
    graphs = _tables(root, 3)
    tensors = _tables(graphs[0], 2) if graphs else []
    found = [_of_tensor(tensor) for tensor in tensors[:inputs]]
    return (*found, *[Preprocessing()] * (inputs - len(found)))


def _of_tensor(tensor: Table) -> Preprocessing:
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    for unit in _tables(tensor, 4):
        options = _member(unit, 0, _NORMALIZATION)
        if options is not None:
            mean, std = _floats(options, 0), _floats(options, 1)
    stats = _table(tensor, 5)
    low, high = (_floats(stats, 1), _floats(stats, 0)) if stats is not None else ((), ())
    content = _table(tensor, 3)
    audio = _member(content, 0, _AUDIO) if content is not None else None
    rate = 0
    if audio is not None and (place := audio.Offset(4)):
        rate = int(audio.Get(types.Uint32Flags, audio.Pos + place))
    if not (mean and std):
        mean = std = ()
    return Preprocessing(mean, std, low, high, rate, "the model's metadata")


def _place(table: Table, field: int) -> int:
    """Return the position of a field in the data, or 0 if it is missing."""
    offset = table.Offset(4 + 2 * field)
    return table.Pos + offset if offset else 0


def _table(table: Table, field: int) -> Table | None:
    place = _place(table, field)
    return Table(table.Bytes, table.Indirect(place)) if place else None


def _member(table: Table, field: int, kind: int) -> Table | None:
    """Return the table of a union if it is of this kind. The field before it has the kind."""
    place = _place(table, field)
    if not place or table.Get(types.Uint8Flags, place) != kind:
        return None
    return _table(table, field + 1)


def _tables(table: Table, field: int) -> list[Table]:
    start, count = _vector(table, field)
    return [Table(table.Bytes, table.Indirect(start + 4 * i)) for i in range(count)]


def _floats(table: Table, field: int) -> tuple[float, ...]:
    start, count = _vector(table, field)
    return tuple(float(table.Get(types.Float32Flags, start + 4 * i)) for i in range(count))


def _vector(table: Table, field: int) -> tuple[int, int]:
    """Return start and length of a vector."""
    offset = table.Offset(4 + 2 * field)
    return (table.Vector(offset), min(table.VectorLen(offset), _MOST)) if offset else (0, 0)
