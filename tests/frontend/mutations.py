"""Deterministic damage to model files."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import tflite

WORDS = (0, 1, 2, 3, 7, 0xFF, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE)
FLOATS = (0.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e-45, 1e38, -0.0)


def metadata_words(data: bytes) -> list[int]:
    """Positions of 32-bit words that look like offsets, lengths, indices or enumerations."""
    words = np.frombuffer(data[: len(data) // 4 * 4], "<i4")
    likely = np.abs(words.astype(np.int64)) < len(data)
    return [int(i) * 4 for i in np.nonzero(likely)[0]]


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


def _change_meaning(data: bytes, rng: np.random.Generator) -> bytes:
    """A well-formed file that says something else, in one to three places."""
    damaged = bytearray(data)
    for position in rng.choice(semantic_positions(data), int(rng.integers(1, 4))):
        kind = rng.random()
        if kind < 0.5:
            damaged[position] = int(rng.choice([0, 1, 2, 3, 4, 5, 6, 8, 9, 17, 127, 128, 254, 255]))
        elif kind < 0.8:
            struct.pack_into("<I", damaged, position, WORDS[int(rng.integers(len(WORDS)))])
        elif kind < 0.9:
            struct.pack_into("<f", damaged, position, FLOATS[int(rng.integers(len(FLOATS)))])
        else:
            struct.pack_into("<H", damaged, position, int(rng.integers(0, 1 << 16)))
    return bytes(damaged)


def mutate(data: bytes, seed: int) -> bytes:
    """One damaged version of a file; the same for the same seed."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        return _change_meaning(data, rng)
    seed //= 2
    damaged = bytearray(data)
    kind = seed % 6
    if kind == 0:  # truncation
        return data[: int(rng.integers(0, len(data)))]
    if kind == 1:  # flipped bytes anywhere
        for position in rng.integers(0, len(data), int(rng.integers(1, 20))):
            damaged[position] ^= int(rng.integers(1, 256))
        return bytes(damaged)
    positions = metadata_words(data)
    count = int(rng.integers(1, 4)) if kind < 5 else int(rng.integers(10, 40))
    for position in rng.choice(positions, min(count, len(positions))):
        if kind == 2:  # extreme lengths, offsets and enumerations
            value = WORDS[int(rng.integers(len(WORDS)))]
        elif kind == 3:  # offsets into other tables, sizes near the file's
            value = int(rng.integers(0, len(data) + 8))
        elif kind == 4:  # values nearby: other types, other tensors, other axes
            (old,) = struct.unpack_from("<I", data, position)
            value = (old + int(rng.integers(-4, 5))) & 0xFFFFFFFF
        else:
            value = int(rng.integers(0, 64))
        if rng.random() < 0.1:
            struct.pack_into("<f", damaged, position, FLOATS[int(rng.integers(len(FLOATS)))])
        else:
            struct.pack_into("<I", damaged, position, value)
    return bytes(damaged)
