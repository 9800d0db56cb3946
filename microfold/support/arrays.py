"""Reader of `.npy` data from untrusted files."""

from __future__ import annotations

import math
import warnings
from io import BytesIO
from typing import Any

from microfold.errors import InputError

_ADVICE = "save one array of numbers with numpy.save"


def parse_npy(data: bytes, name: str, advice: str = _ADVICE) -> Any:
    """Return the array of a `.npy` file, in the byte order of this machine. Python objects are never loaded.

    Args:
        name: name of the file in messages.
        advice: what the file should hold.

    Raises:
        InputError: the bytes are not such a file.
    """
    import numpy as np

    file = BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read_header = np.lib.format.read_array_header_2_0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # files of Python 2
            shape, fortran, dtype = read_header(file)
        if not all(type(extent) is int and extent >= 0 for extent in shape):
            raise ValueError(f"not a shape: {shape}")
    except Exception:  # numpy parses the header as Python, which can raise any exception
        raise InputError(f"{name} is not a readable .npy file; {_ADVICE}") from None
    if dtype.hasobject:
        raise InputError(
            f"{name} is not a readable .npy file: it holds Python objects; {advice}: save numbers"
        )
    content = file.read()
    size = math.prod(shape) * dtype.itemsize
    if len(content) != size:
        raise InputError(
            f"{name} is not a readable .npy file: its header declares {dtype}{list(shape)}, {size:,} bytes; "
            f"got {len(content):,}; {advice}"
        )
    try:
        array = np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
    except ValueError:  # types without a size
        raise InputError(f"{name} is not a readable .npy file: it holds {dtype}; {advice}") from None
    return np.ascontiguousarray(array, dtype.newbyteorder("="))
