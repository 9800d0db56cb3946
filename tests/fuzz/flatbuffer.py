"""Where the parts of a `.tflite` file are: offsets, vtables, lengths, numbers.

A traversal of the file by the tables of the schema
(https://github.com/tensorflow/tensorflow/blob/master/tensorflow/compiler/mlir/lite/schema/schema.fbs), fields
by their position there. Builtin options are traversed without knowing their fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple


class Part(NamedTuple):
    """A number in the file.

    Attributes:
        kind: ``offset``, ``vtable``, ``entry`` (of a vtable), ``length``, ``float``, ``integer`` or ``data``.
    """

    kind: str
    position: int
    size: int


# A field: its scalar's struct letter, the name of its table, or either in brackets for a vector of it.
TABLES: dict[str, list[str]] = {
    "Model": ["I", "[OperatorCode]", "[SubGraph]", "[B]", "[Buffer]", "[i]", "[Metadata]", "[SignatureDef]"],
    "OperatorCode": ["b", "[B]", "i", "i"],
    "SubGraph": ["[Tensor]", "[i]", "[i]", "[Operator]", "[B]"],
    "Tensor": ["[i]", "B", "I", "[B]", "Quantization", "B", "Sparsity", "[i]", "B"],
    "Quantization": ["[f]", "[f]", "[f]", "[q]", "B", "Options", "i"],
    "Operator": ["I", "[i]", "[i]", "B", "Options", "[B]", "B", "[B]", "[i]"],
    "Buffer": ["[B]", "Q", "Q"],
    "Metadata": ["[B]", "I"],
    "SignatureDef": ["[TensorMap]", "[TensorMap]", "[B]", "I"],
    "TensorMap": ["[B]", "I"],
    "Sparsity": ["[i]", "[i]", "[Dimension]"],
    "Dimension": ["b", "i", "B", "Options", "B", "Options"],
    "Options": [],
}
MOST_ELEMENTS = 16  # of a vector of numbers


def parts(data: bytes) -> list[Part]:
    """The parts of a well-formed file."""
    found: list[Part] = [Part("offset", 0, 4)]
    (root,) = struct.unpack_from("<I", data, 0)
    found += _table(data, root, "Model")
    return found


def _table(data: bytes, start: int, name: str) -> Iterator[Part]:
    pending = [(start, name)]
    while pending:
        table, name = pending.pop()
        yield Part("vtable", table, 4)
        vtable = table - struct.unpack_from("<i", data, table)[0]
        size, _ = struct.unpack_from("<HH", data, vtable)
        yield from (Part("entry", vtable + 2 * i, 2) for i in range(size // 2))
        fields = TABLES[name] or ["i"] * ((size - 4) // 2)
        for slot, kind in enumerate(fields):
            entry = 4 + 2 * slot
            (offset,) = struct.unpack_from("<H", data, vtable + entry) if entry < size else (0,)
            if not offset:
                continue
            at = table + offset
            if kind in TABLES or kind.startswith("["):
                yield Part("offset", at, 4)
                target = at + struct.unpack_from("<I", data, at)[0]
                if kind in TABLES:
                    pending.append((target, kind))
                else:
                    yield from _vector(data, target, kind[1:-1], pending)
            elif at + struct.calcsize(kind) <= len(data):
                # Options' fields may be bytes: what follows them is then changed as well.
                yield Part("integer", at, struct.calcsize(kind))


def _vector(data: bytes, at: int, kind: str, pending: list[tuple[int, str]]) -> Iterator[Part]:
    yield Part("length", at, 4)
    (length,) = struct.unpack_from("<I", data, at)
    first = at + 4
    if kind in TABLES:
        for i in range(length):
            yield Part("offset", first + 4 * i, 4)
            pending.append((first + 4 * i + struct.unpack_from("<I", data, first + 4 * i)[0], kind))
        return
    size = struct.calcsize(kind)
    what = {"f": "float", "B": "data"}.get(kind, "integer")
    yield from (Part(what, first + size * i, size) for i in range(min(length, MOST_ELEMENTS)))
