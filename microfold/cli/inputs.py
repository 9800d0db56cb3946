"""Reader of input sets from .npy files."""

from __future__ import annotations

import math
import warnings
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microfold.errors import InputError
from microfold.support.files import read_file

if TYPE_CHECKING:
    from microfold.program import Buffer, Program


def load_inputs(paths: list[Path], program: Program) -> list[tuple[Any, ...]]:
    """Return the arrays from .npy files, one per model input, as one tuple per call.

    Each file holds an array of the input's shape (one call), or several stacked along a new first axis.

    Raises:
        InputError: a file cannot be read or does not match its input, or the numbers of sets differ.
    """
    if len(paths) != len(program.inputs):
        raise InputError(
            f"the model has {len(program.inputs)} inputs; got {len(paths)} .npy files: "
            "pass one file per input"
        )
    columns = [_load(path, buffer) for path, buffer in zip(paths, program.inputs, strict=True)]
    if len({len(column) for column in columns}) > 1:
        raise InputError(
            f"all inputs must have the same number of sets; got {[len(c) for c in columns]}: "
            "stack the same number in each file"
        )
    return list(zip(*columns, strict=True))


def _load(path: Path, buffer: Buffer) -> list[Any]:
    """Return the sets for one input."""
    import numpy as np

    shape, dtype = buffer.type.shape, buffer.type.dtype.numpy
    many = ",".join(map(str, ("N", *shape)))
    wanted = f"{path} must hold {buffer.type}, or several stacked along a new first axis: [{many}]"
    file = BytesIO(read_file(path))
    try:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read_header = np.lib.format.read_array_header_2_0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # files of Python 2
            found, fortran, found_dtype = read_header(file)
        if not all(type(extent) is int and extent >= 0 for extent in found):
            raise ValueError(f"not a shape: {found}")
    except Exception:  # numpy parses the header as Python, which can raise any exception
        raise InputError(
            f"{path} is not a readable .npy file; save one array of numbers with numpy.save"
        ) from None
    if found_dtype.hasobject:
        raise InputError(
            f"{path} is not a readable .npy file: it holds Python objects; {wanted}: save numbers"
        )
    stacked = (1, *found) if found == shape else found
    # Files may have either byte order.
    if stacked[1:] != shape or found_dtype.newbyteorder("=") != dtype or not stacked[0]:
        raise InputError(
            f"{wanted}; got {found_dtype}{list(found)}: convert it with astype and reshape, and save it again"
        )
    data = file.read()
    if len(data) != math.prod(found) * found_dtype.itemsize:
        raise InputError(
            f"{path} is not a readable .npy file: its header declares {found_dtype}{list(found)}, "
            f"{math.prod(found) * found_dtype.itemsize:,} bytes; got {len(data):,}; save it again"
        )
    array = np.frombuffer(data, found_dtype).reshape(stacked, order="F" if fortran else "C")
    return list(np.ascontiguousarray(array, dtype))
