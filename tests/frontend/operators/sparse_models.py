"""Small `.tflite` files with sparse weights."""

from __future__ import annotations

from collections.abc import Sequence

import flatbuffers
import numpy as np
import tflite
from numpy.typing import NDArray

Array = NDArray[np.generic]
BLOCK = 4


def _vector(builder: flatbuffers.Builder, start, items: Sequence[int]) -> int:
    """A vector of offsets."""
    start(builder, len(items))
    for item in reversed(items):
        builder.PrependUOffsetTRelative(item)
    return builder.EndVector()


def _indices(builder: flatbuffers.Builder, values: Array) -> tuple[int, int]:
    """Type and offset of a list of indices, of the narrowest type that holds them."""
    for limit, dtype, name in ((1 << 8, "u1", "Uint8"), (1 << 16, "u2", "Uint16"), (1 << 31, "i4", "Int32")):
        if values.max(initial=0) < limit:
            data = builder.CreateNumpyVector(values.astype(dtype))
            getattr(tflite, f"{name}VectorStart")(builder)
            getattr(tflite, f"{name}VectorAddValues")(builder, data)
            kind = getattr(tflite.SparseIndexVector, f"{name}Vector")
            return kind, getattr(tflite, f"{name}VectorEnd")(builder)
    raise AssertionError


def _dense_level(builder: flatbuffers.Builder, size: int) -> int:
    tflite.DimensionMetadataStart(builder)
    tflite.DimensionMetadataAddFormat(builder, tflite.DimensionType.DENSE)
    tflite.DimensionMetadataAddDenseSize(builder, size)
    return tflite.DimensionMetadataEnd(builder)


def _sparse_level(builder: flatbuffers.Builder, segments: Array, indices: Array) -> int:
    segments_type, segments_at = _indices(builder, segments)
    indices_type, indices_at = _indices(builder, indices)
    tflite.DimensionMetadataStart(builder)
    tflite.DimensionMetadataAddFormat(builder, tflite.DimensionType.SPARSE_CSR)
    tflite.DimensionMetadataAddArraySegmentsType(builder, segments_type)
    tflite.DimensionMetadataAddArraySegments(builder, segments_at)
    tflite.DimensionMetadataAddArrayIndicesType(builder, indices_type)
    tflite.DimensionMetadataAddArrayIndices(builder, indices_at)
    return tflite.DimensionMetadataEnd(builder)


def _sparsity(builder: flatbuffers.Builder, weights: Array, blocks: bool) -> tuple[int, Array]:
    """Parameters, and the stored elements: of each row those that are not zero, or blocks of 1x4."""
    rows, columns = weights.shape
    width = BLOCK if blocks else 1
    cells = weights.reshape(rows, columns // width, width)
    occupied = np.any(cells != 0, axis=2)
    segments = np.concatenate([[0], np.cumsum(occupied.sum(axis=1))])
    levels = [_dense_level(builder, rows), _sparse_level(builder, segments, np.nonzero(occupied)[1])]
    levels += [_dense_level(builder, width)] if blocks else []
    metadata = _vector(builder, tflite.SparsityParametersStartDimMetadataVector, levels)
    order = builder.CreateNumpyVector(np.arange(len(levels), dtype=np.int32))
    block_map = builder.CreateNumpyVector(np.array([1] if blocks else [], np.int32))
    tflite.SparsityParametersStart(builder)
    tflite.SparsityParametersAddTraversalOrder(builder, order)
    tflite.SparsityParametersAddBlockMap(builder, block_map)
    tflite.SparsityParametersAddDimMetadata(builder, metadata)
    return tflite.SparsityParametersEnd(builder), cells[occupied]


def sparse_layer(weights: Array, *, blocks: bool = True) -> bytes:
    """float32 x [1, K] -> FULLY_CONNECTED by DENSIFY of the sparse weights [M, K]."""
    builder = flatbuffers.Builder(1024)
    units, inputs = weights.shape
    sparsity, stored = _sparsity(builder, weights, blocks)
    buffers = []
    for array in (np.zeros(0, np.uint8), np.ascontiguousarray(stored).reshape(-1).view(np.uint8)):
        data = builder.CreateNumpyVector(array)
        tflite.BufferStart(builder)
        tflite.BufferAddData(builder, data)
        buffers.append(tflite.BufferEnd(builder))
    tensors = []
    shapes = (
        ("x", (1, inputs), 0),
        ("w", (units, inputs), 1),
        ("d", (units, inputs), 0),
        ("y", (1, units), 0),
    )
    for name, shape, buffer in shapes:
        text, extents = builder.CreateString(name), builder.CreateNumpyVector(np.array(shape, np.int32))
        tflite.TensorStart(builder)
        tflite.TensorAddShape(builder, extents)
        tflite.TensorAddType(builder, tflite.TensorType.FLOAT32)
        tflite.TensorAddBuffer(builder, buffer)
        tflite.TensorAddName(builder, text)
        if name == "w":
            tflite.TensorAddSparsity(builder, sparsity)
        tensors.append(tflite.TensorEnd(builder))
    tflite.FullyConnectedOptionsStart(builder)
    options = tflite.FullyConnectedOptionsEnd(builder)
    operators = []
    for code, reads, writes in ((0, [1], [2]), (1, [0, 2, -1], [3])):
        inputs_at = builder.CreateNumpyVector(np.array(reads, np.int32))
        outputs_at = builder.CreateNumpyVector(np.array(writes, np.int32))
        tflite.OperatorStart(builder)
        tflite.OperatorAddOpcodeIndex(builder, code)
        tflite.OperatorAddInputs(builder, inputs_at)
        tflite.OperatorAddOutputs(builder, outputs_at)
        if code:
            tflite.OperatorAddBuiltinOptionsType(builder, tflite.BuiltinOptions.FullyConnectedOptions)
            tflite.OperatorAddBuiltinOptions(builder, options)
        operators.append(tflite.OperatorEnd(builder))
    codes = []
    for code, version in ((tflite.BuiltinOperator.DENSIFY, 1), (tflite.BuiltinOperator.FULLY_CONNECTED, 1)):
        tflite.OperatorCodeStart(builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, min(code, 127))
        tflite.OperatorCodeAddBuiltinCode(builder, code)
        tflite.OperatorCodeAddVersion(builder, version)
        codes.append(tflite.OperatorCodeEnd(builder))
    parts = {
        "Tensors": _vector(builder, tflite.SubGraphStartTensorsVector, tensors),
        "Operators": _vector(builder, tflite.SubGraphStartOperatorsVector, operators),
        "Inputs": builder.CreateNumpyVector(np.array([0], np.int32)),
        "Outputs": builder.CreateNumpyVector(np.array([3], np.int32)),
    }
    tflite.SubGraphStart(builder)
    for name, offset in parts.items():
        getattr(tflite, f"SubGraphAdd{name}")(builder, offset)
    subgraph = tflite.SubGraphEnd(builder)
    parts = {
        "OperatorCodes": _vector(builder, tflite.ModelStartOperatorCodesVector, codes),
        "Subgraphs": _vector(builder, tflite.ModelStartSubgraphsVector, [subgraph]),
        "Buffers": _vector(builder, tflite.ModelStartBuffersVector, buffers),
    }
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    for name, offset in parts.items():
        getattr(tflite, f"ModelAdd{name}")(builder, offset)
    builder.Finish(tflite.ModelEnd(builder), b"TFL3")
    return bytes(builder.Output())
