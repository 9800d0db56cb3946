"""What to change in model files, and into what."""

from __future__ import annotations

import struct
from typing import Any

import tflite

WORDS = (0, 1, 2, 3, 7, 0xFF, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE)
FLOATS = (0.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e-45, 1e38, -0.0)


def _fields(data: bytes, table: Any) -> list[int]:
    """Positions of the scalar fields of a flatbuffer table."""
    position = table._tab.Pos
    vtable = position - struct.unpack_from("<i", data, position)[0]
    (size,) = struct.unpack_from("<H", data, vtable)
    offsets = struct.unpack_from(f"<{(size - 4) // 2}H", data, vtable + 4)
    return [position + offset for offset in offsets if offset]


def _vector(table: Any, slot: int, element_size: int = 4) -> list[int]:
    """Positions of the elements of a vector field."""
    offset = table._tab.Offset(slot)
    if not offset:
        return []
    start = table._tab.Vector(offset)
    return [start + element_size * i for i in range(table._tab.VectorLen(offset))]


def semantic_positions(data: bytes) -> list[int]:
    """Positions of what a file means: shapes, types, scales, indices, options, small constants."""
    model = tflite.Model.GetRootAsModel(data, 0)
    positions: list[int] = []
    for s in range(model.SubgraphsLength()):
        graph = model.Subgraphs(s)
        positions += _vector(graph, 6) + _vector(graph, 8)
        for i in range(graph.TensorsLength()):
            tensor = graph.Tensors(i)
            positions += _vector(tensor, 4)
            positions += [
                tensor._tab.Pos + tensor._tab.Offset(slot) for slot in (6, 8) if tensor._tab.Offset(slot)
            ]
            if tensor.Quantization() is not None:
                positions += _vector(tensor.Quantization(), 8)[:2] + _vector(tensor.Quantization(), 10, 8)[:2]
            buffer = model.Buffers(tensor.Buffer())
            if 0 < buffer.DataLength() <= 64:
                positions += _vector(buffer, 4, 1)[::4]
        for i in range(graph.OperatorsLength()):
            operator = graph.Operators(i)
            positions += _vector(operator, 6) + _vector(operator, 8)
            positions += [operator._tab.Pos + operator._tab.Offset(4)] if operator._tab.Offset(4) else []
            if operator.BuiltinOptions() is not None:
                options = tflite.AddOptions()
                options.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
                positions += _fields(data, options)
    return [position for position in positions if position + 4 <= len(data)]


def with_scale(data: bytes, tensor: int, scale: float) -> bytes:
    """Return the file with another first scale of a quantised tensor of the main subgraph."""
    changed = bytearray(data)
    quantization = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0).Tensors(tensor).Quantization()
    struct.pack_into("<f", changed, _vector(quantization, 8)[0], scale)
    return bytes(changed)
