"""Writes small `.tflite` files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite
from msgspec import Struct, field


class TensorSpec(Struct, frozen=True):
    """A tensor; `data` makes it constant."""

    name: str
    shape: tuple[int, ...]
    type: int = tflite.TensorType.INT8
    data: bytes = b""
    scale: float | None = None
    zero_point: int = 0


class OperatorSpec(Struct, frozen=True):
    """An operator: a built-in code, or the name of a custom one."""

    code: int | str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    custom_options: bytes = b""
    options: Callable[[flatbuffers.Builder], tuple[int, int]] | None = None


class ModelSpec(Struct, frozen=True):
    tensors: list[TensorSpec]
    operators: list[OperatorSpec]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    metadata: dict[str, bytes] = field(default_factory=dict)


def write(model: ModelSpec) -> bytes:
    """The bytes of the file."""
    b = flatbuffers.Builder(1024)
    buffers = [b"", *(tensor.data for tensor in model.tensors), *model.metadata.values()]
    codes = list(dict.fromkeys(operator.code for operator in model.operators))
    operator_codes = _tables(b, [_code(b, code) for code in codes])
    tensors = _tables(b, [_tensor(b, tensor, index) for index, tensor in enumerate(model.tensors)])
    operators = _tables(b, [_operator(b, operator, codes) for operator in model.operators])
    inputs, outputs = _ints(b, model.inputs), _ints(b, model.outputs)
    tflite.SubGraphStart(b)
    tflite.SubGraphAddTensors(b, tensors)
    tflite.SubGraphAddInputs(b, inputs)
    tflite.SubGraphAddOutputs(b, outputs)
    tflite.SubGraphAddOperators(b, operators)
    subgraphs = _tables(b, [tflite.SubGraphEnd(b)])
    first = 1 + len(model.tensors)
    metadata = _tables(b, [_metadata(b, name, first + i) for i, name in enumerate(model.metadata)])
    stored = _tables(b, [_buffer(b, data) for data in buffers])
    tflite.ModelStart(b)
    tflite.ModelAddVersion(b, 3)
    tflite.ModelAddOperatorCodes(b, operator_codes)
    tflite.ModelAddSubgraphs(b, subgraphs)
    tflite.ModelAddBuffers(b, stored)
    tflite.ModelAddMetadata(b, metadata)
    b.Finish(tflite.ModelEnd(b), b"TFL3")
    return bytes(b.Output())


def _tables(b: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return b.EndVector()


def _ints(b: flatbuffers.Builder, numbers: Sequence[int]) -> int:
    return b.CreateNumpyVector(np.array(numbers, np.int32))


def _code(b: flatbuffers.Builder, code: int | str) -> int:
    custom = b.CreateString(code) if isinstance(code, str) else None
    builtin = tflite.BuiltinOperator.CUSTOM if isinstance(code, str) else code
    tflite.OperatorCodeStart(b)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(builtin, 127))
    tflite.OperatorCodeAddBuiltinCode(b, builtin)
    if custom is not None:
        tflite.OperatorCodeAddCustomCode(b, custom)
    return tflite.OperatorCodeEnd(b)


def _tensor(b: flatbuffers.Builder, tensor: TensorSpec, index: int) -> int:
    name, shape = b.CreateString(tensor.name), _ints(b, tensor.shape)
    quantization = None
    if tensor.scale is not None:
        scale = b.CreateNumpyVector(np.array([tensor.scale], np.float32))
        zero_point = b.CreateNumpyVector(np.array([tensor.zero_point], np.int64))
        tflite.QuantizationParametersStart(b)
        tflite.QuantizationParametersAddScale(b, scale)
        tflite.QuantizationParametersAddZeroPoint(b, zero_point)
        quantization = tflite.QuantizationParametersEnd(b)
    tflite.TensorStart(b)
    tflite.TensorAddShape(b, shape)
    tflite.TensorAddType(b, tensor.type)
    tflite.TensorAddBuffer(b, index + 1)
    tflite.TensorAddName(b, name)
    if quantization is not None:
        tflite.TensorAddQuantization(b, quantization)
    return tflite.TensorEnd(b)


def _operator(b: flatbuffers.Builder, operator: OperatorSpec, codes: Sequence[Any]) -> int:
    inputs, outputs = _ints(b, operator.inputs), _ints(b, operator.outputs)
    custom = b.CreateByteVector(operator.custom_options) if operator.custom_options else None
    kind, options = operator.options(b) if operator.options is not None else (0, None)
    tflite.OperatorStart(b)
    tflite.OperatorAddOpcodeIndex(b, codes.index(operator.code))
    tflite.OperatorAddInputs(b, inputs)
    tflite.OperatorAddOutputs(b, outputs)
    if custom is not None:
        tflite.OperatorAddCustomOptions(b, custom)
    if options is not None:
        tflite.OperatorAddBuiltinOptionsType(b, kind)
        tflite.OperatorAddBuiltinOptions(b, options)
    return tflite.OperatorEnd(b)


def _metadata(b: flatbuffers.Builder, name: str, buffer: int) -> int:
    text = b.CreateString(name)
    tflite.MetadataStart(b)
    tflite.MetadataAddName(b, text)
    tflite.MetadataAddBuffer(b, buffer)
    return tflite.MetadataEnd(b)


def _buffer(b: flatbuffers.Builder, data: bytes) -> int:
    vector = b.CreateByteVector(data) if data else None
    tflite.BufferStart(b)
    if vector is not None:
        tflite.BufferAddData(b, vector)
    return tflite.BufferEnd(b)
