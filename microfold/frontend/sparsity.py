"""Conversion of sparse constants of a `.tflite` file to dense arrays.

A tensor with SparsityParameters stores only some elements, in the order of a traversal. Its levels are the
tensor's dimensions and, if it has blocks, the dimensions in a block. A level is dense, or it stores
indices and segments. Segment i is the range of the indices that belong to entry i of the level above. Format:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/schema/schema.fbs (SparsityParameters).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tflite

from microfold.ir.types import Array, Shape

_VECTORS = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}
MAX_DIMENSIONS = 16


def densify(table: Any, values: Array, shape: Shape, limit: int) -> Array:
    """Return the dense array of a sparse constant.

    Args:
        table: SparsityParameters of the tensor.
        values: stored elements [n].
        limit: maximum number of elements of the result.

    Raises:
        ValueError: the parameters are inconsistent with each other, the values or the shape.
    """
    if math.prod(shape) > limit:
        raise ValueError(f"a sparse {list(shape)} has more than {limit} elements")
    order, blocked = _integers(table.TraversalOrder, table), _integers(table.BlockMap, table)
    if sorted(order) != list(range(len(shape) + len(blocked))) or table.DimMetadataLength() != len(order):
        raise ValueError(f"a sparse {list(shape)} is traversed in the order {order}")
    if len(set(blocked)) != len(blocked) or any(not 0 <= axis < len(shape) for axis in blocked):
        raise ValueError(f"a sparse {list(shape)} has blocks along {blocked}")
    levels = [table.DimMetadata(level) for level in range(len(order))]
    sizes = _sizes(levels, order, blocked, shape)
    # Entries of the current level: the index in each dimension, and the number within the level.
    places = {dimension: np.zeros(1, np.int64) for dimension in order}
    entries = np.zeros(1, np.int64)
    for level, dimension in zip(levels, order, strict=True):
        size = sizes[dimension]
        if level.Format() == tflite.DimensionType.DENSE:
            if entries.size * size > limit:
                raise ValueError(f"a sparse {list(shape)} has more than {limit} entries")
            parents = np.repeat(np.arange(entries.size), size)
            index = np.tile(np.arange(size), entries.size)
            entries = entries[parents] * size + index
        else:
            segments = _vector(level.ArraySegmentsType(), level.ArraySegments())
            indices = _vector(level.ArrayIndicesType(), level.ArrayIndices())
            if entries.size and (entries.max() + 1 >= segments.size or np.any(np.diff(segments) < 0)):
                raise ValueError("segments of a sparse constant are cut off, or not in order")
            if segments.size and not 0 <= segments[0] <= segments[-1] <= indices.size:
                raise ValueError("segments of a sparse constant refer to missing indices")
            if indices.size and not 0 <= indices.min() <= indices.max() < size:
                raise ValueError(f"indices of a sparse constant must be in [0, {size})")
            counts = segments[entries + 1] - segments[entries]
            parents = np.repeat(np.arange(entries.size), counts)
            within = np.arange(parents.size) - np.repeat(np.cumsum(counts) - counts, counts)
            entries = segments[entries][parents] + within
            index = indices[entries]
        places = {other: place[parents] for other, place in places.items()}
        places[dimension] = index
    if entries.size != values.size or (entries.size and entries.max() >= values.size):
        raise ValueError(
            f"a sparse {list(shape)} must have {entries.size} elements; its buffer has {values.size}"
        )
    for inner, axis in enumerate(blocked, len(shape)):
        places[axis] = places[axis] * sizes[inner] + places[inner]
    dense = np.zeros(shape, values.dtype)
    dense[tuple(places[axis] for axis in range(len(shape)))] = values[entries]
    return dense


def _sizes(levels: list[Any], order: list[int], blocked: list[int], shape: Shape) -> list[int]:
    """Return the size of each dimension: the tensor's, followed by the dimensions in blocks."""
    sizes = [*shape, *(0 for _ in blocked)]
    for inner, axis in enumerate(blocked, len(shape)):
        level = levels[order.index(inner)]
        size = int(level.DenseSize())
        if level.Format() != tflite.DimensionType.DENSE or size < 1 or shape[axis] % size:
            raise ValueError(f"blocks of {size} do not divide axis {axis} of a sparse {list(shape)}")
        sizes[inner], sizes[axis] = size, shape[axis] // size
    for level, dimension in zip(levels, order, strict=True):
        if level.Format() == tflite.DimensionType.DENSE and level.DenseSize() != sizes[dimension]:
            raise ValueError(f"a level of a sparse {list(shape)} has {level.DenseSize()} entries")
    return sizes


def _integers(read: Any, table: Any) -> list[int]:
    length = getattr(table, f"{read.__name__}Length")()
    if not 0 <= length <= MAX_DIMENSIONS:
        raise ValueError(f"a sparse constant must have at most {MAX_DIMENSIONS} dimensions; it has {length}")
    return [int(read(i)) for i in range(length)]


def _vector(kind: int, union: Any) -> Array:
    if kind not in _VECTORS or union is None:
        raise ValueError(f"a sparse constant has no indices of kind {kind}")
    vector = _VECTORS[kind]()
    vector.Init(union.Bytes, union.Pos)
    return np.asarray(vector.ValuesAsNumpy(), np.int64).reshape(-1)
