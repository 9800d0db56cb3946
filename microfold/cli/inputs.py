"""Reader of input sets from .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from microfold.errors import InputError
from microfold.support.arrays import parse_npy
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
    shape, dtype = buffer.type.shape, buffer.type.dtype.numpy
    many = ",".join(map(str, ("N", *shape)))
    wanted = f"{path} must hold {buffer.type}, or several stacked along a new first axis: [{many}]"
    array = parse_npy(read_file(path), str(path), wanted)
    found = array.shape
    stacked = (1, *found) if found == shape else found
    if stacked[1:] != shape or array.dtype != dtype or not stacked[0]:
        raise InputError(
            f"{wanted}; got {array.dtype}{list(found)}: convert it with astype and reshape, and save it again"
        )
    return list(array.reshape(stacked))
