"""Model as stored in its file: plain data, and operator options read on demand.

The data are not validated, apart from lengths, which were checked against the size of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import tflite
from msgspec import Struct

from microfold.errors import ModelFormatError
from microfold.ir.types import Array, DType, Quant

MAX_NAME = 512
MAX_CUSTOM = 4096


class RawTensor(Struct, frozen=True):
    """Tensor as stored in the file.

    Attributes:
        dtype: element type; None for a type that the compiler does not support, see `type_name`.
        type_name: name of the element type in the format.
        shape: shape as stored; dimensions can be -1 or outdated.
        quant: quantisation; None if there is none, or if it has no meaning for the type.
        quant_fault: reason why the quantisation cannot be used; empty if it can.
        blocks: for block-wise quantisation, the index of the tensor of scales and the elements per scale
            along the last axis; else None. Importers that do not support blocks report `quant_fault`.
        shape_fault: reason why no value can have the shape; empty if the shape is valid.
        data: elements of a constant; None for a computed value, or if the shape is invalid.
        is_variable: whether operators update the tensor in place, with effect on later runs.
        arena_offset: offset in bytes from a memory plan in the file; None if it has none for this tensor.
        signature: shape with -1 for each dimension that the file leaves open.
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


class RawOperator(Struct, frozen=True):
    """Operator as stored in the file. Input -1 is absent.

    Attributes:
        intermediates: tensors with the quantisation of values in the operator; -1 is absent.
    """

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: Any
    source: str
    intermediates: tuple[int, ...] = ()

    def options_code(self) -> int:
        """Return the type number of the builtin options in the format."""
        with malformed_as_error(self.source):
            return int(self.table.BuiltinOptionsType())

    def options(self, kind: str) -> OperatorOptions | None:
        """Return the builtin options as the `tflite` class named `kind`; None if the file has none."""
        with malformed_as_error(self.source):
            union = self.table.BuiltinOptions()
            if union is None or union.Pos >= len(union.Bytes):
                return None
            options = getattr(tflite, kind)()
            options.Init(union.Bytes, union.Pos)
            return OperatorOptions(options, self.source)

    def newer_options(self, kind: str) -> OperatorOptions | None:
        """Return the options of the format's second union as the `tflite` class named `kind`, or None."""
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
        """Return at most `MAX_CUSTOM` bytes of the options of a custom operator; empty if it has none."""
        with malformed_as_error(self.source):
            length = min(self.table.CustomOptionsLength(), MAX_CUSTOM)
            return bytes(int(self.table.CustomOptions(i)) for i in range(length))


class OperatorOptions:
    """Fields of an options table. Reading beyond the file raises `ModelFormatError`.

    Fields are methods, as in the `tflite` package: ``options.StrideH()``.
    """

    def __init__(self, table: Any, source: str):
        self._table = table
        self._source = source

    def text(self, name: str) -> str:
        """Return a string field, or an empty string if it is missing."""
        return plain_text(getattr(self, name)() or b"")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        field = getattr(self._table, name)

        def read(*arguments: int) -> Any:
            with malformed_as_error(self._source):
                return field(*arguments)

        return read


class RawSubgraph(Struct, frozen=True):
    """Subgraph of the file; inputs and outputs are indices of its tensors."""

    name: str
    tensors: tuple[RawTensor, ...]
    operators: tuple[RawOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@contextmanager
def malformed_as_error(source: str) -> Generator[None]:
    """Convert exceptions of flatbuffer accesses to malformed bytes into `ModelFormatError`."""
    try:
        yield
    except (
        struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError, KeyError, MemoryError,
        RecursionError,
    ) as error:  # fmt: skip
        detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ModelFormatError(
            f"{source} is damaged, not a well-formed .tflite file ({detail}): convert the model again"
        ) from None


def plain_text(raw: bytes) -> str:
    """Return printable text without white space, of at most `MAX_NAME` characters."""
    text = raw[: 4 * MAX_NAME].decode("utf-8", errors="replace")[:MAX_NAME]
    return "".join(character if character.isprintable() and character != " " else "_" for character in text)
