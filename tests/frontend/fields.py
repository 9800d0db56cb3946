"""Changes of single scalar fields of a model file, by the names that the `tflite` package gives them."""

from __future__ import annotations

import inspect
import re
import struct
from typing import Any

import tflite

from tests.frontend import models

_FORMATS = {"Int8": "<b", "Uint8": "<B", "Bool": "<?", "Int32": "<i", "Uint32": "<I", "Float32": "<f"}


class Absent(Exception):
    """The file does not store the field: it has its default."""


def made(name: str) -> bytes:
    """The bytes of one of the repository's models."""
    return (models.MADE / f"{name}.tflite").read_bytes()


def operator(data: bytes, index: int = 0) -> Any:
    """An operator's table."""
    return tflite.Model.GetRootAsModel(data, 0).Subgraphs(0).Operators(index)


def find(data: bytes, code: str) -> int:
    """The first operator of a kind."""
    model = tflite.Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    wanted = getattr(tflite.BuiltinOperator, code)
    for index in range(graph.OperatorsLength()):
        codes = model.OperatorCodes(graph.Operators(index).OpcodeIndex())
        if max(codes.DeprecatedBuiltinCode(), codes.BuiltinCode()) == wanted:
            return index
    raise LookupError(f"there is no {code}")


def options(data: bytes, index: int) -> tuple[str, Any]:
    """The kind and the table of an operator's options; the kind is NONE where it has none."""
    table = operator(data, index)
    names = {code: name for name, code in vars(tflite.BuiltinOptions).items() if isinstance(code, int)}
    kind = names[table.BuiltinOptionsType()]
    result = getattr(tflite, kind)() if kind != "NONE" else None
    if result is not None:
        result.Init(table.BuiltinOptions().Bytes, table.BuiltinOptions().Pos)
    return kind, result


def with_field(data: bytes, table: Any, field: str, value: float) -> bytes:
    """The file with another value of a scalar field.

    Raises:
        Absent: it is not stored.
    """
    source = inspect.getsource(getattr(type(table), field))
    slot = int(re.findall(r"Offset\((\d+)\)", source)[0])
    kind = re.findall(r"Get\(flatbuffers\.number_types\.(\w+)Flags", source)[0]
    offset = table._tab.Offset(slot)
    if not offset:
        raise Absent(field)
    changed = bytearray(data)
    struct.pack_into(_FORMATS[kind], changed, table._tab.Pos + offset, value)
    return bytes(changed)


def with_option(name: str, code: str, field: str, value: float) -> bytes:
    """One of the repository's models with another option of its first operator of a kind."""
    data = made(name)
    return with_field(data, options(data, find(data, code))[1], field, value)
