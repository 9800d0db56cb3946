"""Input sets from .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from microfold.errors import InputError

if TYPE_CHECKING:
    from microfold.program import Buffer, Program


def load_inputs(paths: list[Path], program: Program) -> list[tuple[Any, ...]]:
    """Arrays from .npy files, one per model input, as one tuple per call.

    Each file holds an array of the input's shape (one call), or several stacked along a new first axis.

    Raises:
        InputError: a file cannot be read or does not fit its input, or the numbers of sets differ.
    """
    if len(paths) != len(program.inputs):
        raise InputError(f"the model has {len(program.inputs)} inputs; {len(paths)} files given")
    columns = [_load(path, buffer) for path, buffer in zip(paths, program.inputs, strict=True)]
    if len({len(column) for column in columns}) > 1:
        raise InputError(f"all inputs must have equally many sets; they have {[len(c) for c in columns]}")
    return list(zip(*columns, strict=True))


def _load(path: Path, buffer: Buffer) -> list[Any]:
    """The sets for one input."""
    import numpy as np

    try:
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except Exception:  # the header is parsed as Python: whatever that trips over
        raise InputError(
            f"{path} is not a readable .npy file; save one array of numbers with numpy.save"
        ) from None
    if array.shape == buffer.type.shape:
        array = array[np.newaxis]
    if array.shape[1:] != buffer.type.shape or array.dtype != buffer.type.dtype.numpy or not len(array):
        raise InputError(
            f"{path} must hold {buffer.type}, or several stacked; it holds {array.dtype}{list(array.shape)}"
        )
    return list(array)
