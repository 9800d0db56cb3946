"""Right classes of the samples, for the accuracy of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from microfold.errors import InputError
from microfold.ir.types import Array, TensorType
from microfold.support.arrays import parse_npy
from microfold.support.files import read_file

# Class of each sample: a `.npy` file of integers, a text with one number per line, or the integers.
LabelSource: TypeAlias = "Path | Array | Sequence[int]"


def read_classes(source: LabelSource, count: int, output: TensorType) -> tuple[int, ...]:
    """Return the class of each sample.

    Args:
        count: number of samples in the data.
        output: type of the first output, which has a score for each class.

    Raises:
        InputError: the file cannot be read, or its numbers do not fit.
    """
    classes = output.shape[-1] if output.shape else 1
    if classes < 2 or output.size != classes:
        raise InputError(f"--labels require a first output with a score for each class; it is {output}")
    name = str(source) if isinstance(source, Path) else "the argument"
    array = _read(source) if isinstance(source, Path) else _array(source)
    if array.dtype.kind not in "iu" or array.size != count:
        raise InputError(
            f"--labels must be {count} integers, one for each sample of the data; {name} has "
            f"{array.dtype}{list(array.shape)}"
        )
    array = array.reshape(-1)
    if array.min() < 0 or array.max() >= classes:
        raise InputError(
            f"labels must be from 0 to {classes - 1}, as the first output has {classes} scores; those in "
            f"{name} are from {array.min()} to {array.max()}"
        )
    return tuple(map(int, array))


def _read(path: Path) -> Array:
    data = read_file(path)
    if path.suffix == ".npy":
        return parse_npy(data, str(path), "save the classes as integers")
    try:
        return np.array([int(line) for line in data.decode("utf-8-sig").split()], np.int64)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path} must have the number of a class in each line; {error}") from None


def _array(source: object) -> Array:
    try:
        return np.asarray(source)
    except (ValueError, OverflowError) as error:
        raise InputError(f"labels must be a path, or the class of each sample; {error}") from None
