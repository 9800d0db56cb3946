"""Small float models for the tests of quantisation, and their data."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import tflite

from tests.tflite_writer import Writer


class OldWriter(Writer):
    """Writer of files as older converters wrote them: operator codes are only in the first field."""

    def _code(self, name: str) -> int:
        b = self.builder
        tflite.OperatorCodeStart(b)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(b, getattr(tflite.BuiltinOperator, name))
        return tflite.OperatorCodeEnd(b)


def dense(
    weights: Any = None, bias: Any = None, writer: type[Writer] = OldWriter, metadata: bytes = b""
) -> bytes:
    """A file of one FULLY_CONNECTED layer, 4 inputs and 3 outputs, without a signature."""
    made = writer()
    rng = np.random.default_rng(5)
    weights = rng.normal(size=(3, 4)).astype(np.float32) if weights is None else weights
    bias = rng.normal(size=3).astype(np.float32) if bias is None else bias
    x = made.input((1, 4), "f4")
    w = made.tensor((3, 4), "f4", data=weights)
    b = made.tensor((3,), "f4", data=bias)
    y = made.tensor((1, 3), "f4")
    made.operator("FULLY_CONNECTED", [x, w, b], y, "FullyConnectedOptions")
    return made.pack() if not metadata else with_metadata(made.pack(), metadata)


def with_metadata(data: bytes, metadata: bytes) -> bytes:
    """The file with a buffer of metadata."""
    from ai_edge_litert import schema_py_generated as schema  # type: ignore[reportMissingImports]

    s: Any = schema
    model = s.ModelT.InitFromObj(s.Model.GetRootAs(data, 0))
    entry, buffer = s.MetadataT(), s.BufferT()
    buffer.data = np.frombuffer(metadata, np.uint8)
    model.buffers.append(buffer)
    entry.name, entry.buffer = "TFLITE_METADATA", len(model.buffers) - 1
    model.metadata = [entry]
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def image_metadata(mean: list[float], std: list[float], low: list[float], high: list[float]) -> bytes:
    """Metadata of one input: its normalisation, and the limits of its values."""
    b = flatbuffers.Builder(0)

    def floats(values: list[float]) -> int:
        return b.CreateNumpyVector(np.array(values, np.float32))

    def table(fields: dict[int, int], unions: dict[int, int] | None = None) -> int:
        b.StartObject(8)
        for slot, offset in fields.items():
            b.PrependUOffsetTRelativeSlot(slot, offset, 0)
        for slot, kind in (unions or {}).items():
            b.PrependUint8Slot(slot, kind, 0)
        return b.EndObject()

    def vector(items: list[int]) -> int:
        b.StartVector(4, len(items), 4)
        for item in reversed(items):
            b.PrependUOffsetTRelative(item)
        return b.EndVector()

    options = table({0: floats(mean), 1: floats(std)})
    units = vector([table({1: options}, {0: 1})])
    stats = table({0: floats(high), 1: floats(low)})
    graph = table({2: vector([table({4: units, 5: stats})])})
    b.Finish(table({3: vector([graph])}), b"M001")
    return bytes(b.Output())
