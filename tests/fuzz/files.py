"""Damaged `.tflite` files: offsets, vtables, lengths and numbers that are not what they should be."""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_graph
from microfold.frontend.tflite import import_model
from microfold.ir.graph import verify
from tests.frontend import models
from tests.frontend.mutations import FLOATS, WORDS
from tests.fuzz.engine import Case, Random
from tests.fuzz.flatbuffer import Part, parts

LARGEST_BASE = 64 << 10
MOST_MACS = 1 << 22  # of a model that is compiled as a whole


class Edit(NamedTuple):
    """Bytes that are overwritten; beyond the end, the file is cut off there."""

    position: int
    data: bytes
    cut: bool = False


@cache
def bases() -> list[str]:
    """Bundled models that are small."""
    return [name for name in models.made() if (models.MADE / f"{name}.tflite").stat().st_size < LARGEST_BASE]


@cache
def _base(name: str) -> tuple[bytes, list[Part]]:
    data = (models.MADE / f"{name}.tflite").read_bytes()
    return data, parts(data)


class Files:
    """Byte-level damage that knows what the bytes are."""

    suffix = ".tflite"
    seconds = 10

    def draw(self, rng: Random) -> Case:
        name = bases()[int(rng.integers(len(bases())))]
        data, known = _base(name)
        count = int(rng.choice([1, 1, 1, 2, 3, 8]))
        return Case(name, tuple(self._edit(rng, data, known) for _ in range(count)))

    def payload(self, case: Case) -> bytes:
        data = bytearray(_base(case.base)[0])
        for edit in case.edits:
            if edit.cut:
                del data[edit.position :]
            data[edit.position : edit.position + len(edit.data)] = edit.data
        return bytes(data)

    def _edit(self, rng: Random, data: bytes, known: list[Part]) -> Edit:
        if rng.random() < 0.03:
            return Edit(int(rng.integers(len(data))), b"", cut=True)
        # Kinds in turn: most parts are of one kind.
        kinds = sorted({part.kind for part in known})
        kind = kinds[int(rng.integers(len(kinds)))]
        chosen = [part for part in known if part.kind == kind]
        part = chosen[int(rng.integers(len(chosen)))]
        if part.kind == "float":
            return Edit(part.position, struct.pack("<f", FLOATS[int(rng.integers(len(FLOATS)))]))
        old = int.from_bytes(data[part.position : part.position + part.size], "little")
        other = known[int(rng.integers(len(known)))].position
        values = [
            WORDS[int(rng.integers(len(WORDS)))],
            old + int(rng.integers(-5, 6)),
            int(rng.integers(0, 40)),
            other - part.position,  # a table or vector that is something else
            part.position - other,  # the same for vtables, which lie backwards
            int(rng.integers(0, len(data) + 8)),
            old ^ (1 << int(rng.integers(8 * part.size))),
        ]
        value = values[int(rng.integers(len(values)))] % (1 << (8 * part.size))
        return Edit(part.position, value.to_bytes(part.size, "little"))

    def check(self, payload: bytes) -> str:
        graph = import_model(payload)
        verify(graph)
        if sum(node.macs() for node in graph.nodes) > MOST_MACS:
            return "imported"
        emit(compile_graph(graph, target.load("host")))
        return "compiled"
