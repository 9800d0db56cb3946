"""A model as Vela writes it: relu (on the core), command stream (on the NPU), add (on the core)."""

from __future__ import annotations

import struct

import flatbuffers
import tflite
from msgspec.structs import replace

from tests.external.flatbuffer import ModelSpec, OperatorSpec, TensorSpec

COMMANDS = bytes(range(1, 38))
WEIGHTS = bytes(range(200, 121, -1))
OPTIONS = b"\x01\x04\x01"
ARENA = 1024
# Of the NPU's two inputs and two outputs; the second output lies over the first input.
OFFSETS = {"relu": 64, "extra": 512, "first": 256, "second": 64}


def _add_options(b: flatbuffers.Builder) -> tuple[int, int]:
    tflite.AddOptionsStart(b)
    return tflite.BuiltinOptions.AddOptions, tflite.AddOptionsEnd(b)


def model() -> ModelSpec:
    """Inputs x and extra, output y = first + second."""
    uint8 = tflite.TensorType.UINT8
    tensors = [
        TensorSpec("x", (1, 4, 4, 2), scale=0.5),
        TensorSpec("relu", (1, 4, 4, 2), scale=0.5),
        TensorSpec("extra", (1, 7), scale=0.25, zero_point=3),
        TensorSpec("commands", (len(COMMANDS),), uint8, COMMANDS),
        TensorSpec("flash", (len(WEIGHTS),), uint8, WEIGHTS),
        TensorSpec("scratch", (ARENA,), uint8),
        TensorSpec("scratch_fast", (0,), uint8),
        TensorSpec("first", (1, 9), scale=0.5),
        TensorSpec("second", (1, 9), scale=0.25, zero_point=-7),
        TensorSpec("y", (1, 9), scale=0.5),
    ]
    operators = [
        OperatorSpec(tflite.BuiltinOperator.RELU, (0,), (1,)),
        OperatorSpec("ethos-u", (3, 4, 5, 6, 1, 2), (7, 8), OPTIONS),
        OperatorSpec(tflite.BuiltinOperator.ADD, (7, 8), (9,), options=_add_options),
    ]
    places = [OFFSETS.get(tensor.name, 0 if "scratch" in tensor.name else -1) for tensor in tensors]
    return ModelSpec(tensors, operators, (0, 2), (9,), {"OfflineMemoryAllocation": plan(places)})


def plan(offsets: list[int]) -> bytes:
    """The metadata's content."""
    return struct.pack(f"<{3 + len(offsets)}i", 0, 1, len(offsets), *offsets)


def with_operator(spec: ModelSpec, **changes: object) -> ModelSpec:
    """The model with its NPU operator changed."""
    operators = [replace(o, **changes) if o.code == "ethos-u" else o for o in spec.operators]
    return replace(spec, operators=operators)
