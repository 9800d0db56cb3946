"""A model as its file has it: plain data, and options that are read when somebody asks.

Nothing here is trusted yet but lengths, which were held against the size of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import tflite

from microfold.errors import ModelFormatError
from microfold.ir.types import Array, DType, Quant
from microfold.support.frozen import frozen

MAX_NAME = 512
MAX_CUSTOM = 4096


@frozen
class RawTensor:
    """A tensor as the file has it.

    Attributes:
        dtype: None for a type the compiler has no element type for; `type_name` names it.
        shape: as stored; dimensions may be -1 or stale.
        signature: the shape with -1 for each dimension that the file leaves open.
        quant: how it is quantised; None if it is not, or if that has no meaning for the type.
        quant_fault: why the quantisation cannot be used; empty if it can.
        blocks: index of the tensor of scales, and how many elements along the last axis have one; None if it
            is not quantised by blocks. Operators that do not look for it go by the fault.
        shape_fault: why no value can have the shape; empty if one can.
        data: the constant's array; None for a variable value, and where there is a fault of its shape.
        is_variable: operators update it in place, from one call to the next.
        arena_offset: where a memory plan in the file puts it; None if there is none, or it does not say.
    """

    index: int
    name: str
    dtype: DType | None
    type_name: str
    shape: tuple[int, ...]
    quant: Quant | None
    quant_fault: str
    blocks: tuple[int, int] | None
    shape_fault: str
    data: Array | None
    is_variable: bool
    arena_offset: int | None = None
    signature: tuple[int, ...] = ()


@frozen
class RawOperator:
    """An operator as the file has it; input -1 means absent.

    Attributes:
        intermediates: tensors that tell how values within the operator are quantised; -1 means absent.
    """

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: Any
    source: str
    intermediates: tuple[int, ...] = ()

    def options_code(self) -> int:
        """The kind of its builtin options: a number of the format."""
        with malformed_as_error(self.source):
            return int(self.table.BuiltinOptionsType())

    def options(self, kind: str) -> OperatorOptions | None:
        """The builtin options as the `tflite` class of that name; None if the file has none."""
        with malformed_as_error(self.source):
            union = self.table.BuiltinOptions()
            if union is None or union.Pos >= len(union.Bytes):
                return None
            options = getattr(tflite, kind)()
            options.Init(union.Bytes, union.Pos)
            return OperatorOptions(options, self.source)

    def newer_options(self, kind: str) -> OperatorOptions | None:
        """Options of the format's second union as the `tflite` class of that name; None if it has others."""
        with malformed_as_error(self.source):
            union = self.table.BuiltinOptions2()
            stated = self.table.BuiltinOptions2Type()
            if (
                union is None
                or union.Pos >= len(union.Bytes)
                or stated != getattr(tflite.BuiltinOptions2, kind)
            ):
                return None
            options = getattr(tflite, kind)()
            options.Init(union.Bytes, union.Pos)
            return OperatorOptions(options, self.source)

    def custom_options(self) -> bytes:
        """The options of a custom operator; empty if it has none, at most `MAX_CUSTOM` bytes."""
        with malformed_as_error(self.source):
            length = min(self.table.CustomOptionsLength(), MAX_CUSTOM)
            return bytes(int(self.table.CustomOptions(i)) for i in range(length))


class OperatorOptions:
    """Fields of an options table; reading beyond the file gives `ModelFormatError`.

    Fields are methods, as in the `tflite` package: ``options.StrideH()``.
    """

    def __init__(self, table: Any, source: str):
        self._table = table
        self._source = source

    def text(self, name: str) -> str:
        """A string field; empty if it is missing."""
        return plain_text(getattr(self, name)() or b"")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        field = getattr(self._table, name)

        def read(*arguments: int) -> Any:
            with malformed_as_error(self._source):
                return field(*arguments)

        return read


@frozen
class RawSubgraph:
    name: str
    tensors: tuple[RawTensor, ...]
    operators: tuple[RawOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@contextmanager
def malformed_as_error(source: str) -> Generator[None]:
    """Turn what flatbuffer access raises on broken bytes into one `ModelFormatError`."""
    try:
        yield
    except (
        struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError, KeyError, MemoryError,
        RecursionError,
    ) as error:  # fmt: skip
        detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ModelFormatError(
            f"{source} is not a well-formed .tflite file ({detail}); convert the model again"
        ) from None


def plain_text(raw: bytes) -> str:
    """Printable, without white space, of at most `MAX_NAME` characters."""
    text = raw[: 4 * MAX_NAME].decode("utf-8", errors="replace")[:MAX_NAME]
    return "".join(character if character.isprintable() and character != " " else "_" for character in text)
