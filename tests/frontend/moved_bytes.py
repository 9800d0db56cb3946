"""Files of one operator that moves elements, with a scale of its operands and another one of its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.tflite_writer import Writer

# Scale and zero point of a value.
Quantization = tuple[float, int]
SHAPE = (2, 4, 4, 4)


class Movement:
    """A file in the making.

    Args:
        dtype: of all values that are moved, as numpy spells it.
        first, other, result: of the first operand that is moved, of further ones, and of the results.
    """

    def __init__(self, dtype: str, first: Quantization, other: Quantization, result: Quantization):
        self.writer = Writer()
        self.dtype, self._given, self._other, self.result = dtype, first, other, result

    def _next(self) -> Quantization:
        given, self._given = self._given, self._other
        return given

    def input(self, shape: tuple[int, ...] = SHAPE) -> int:
        return self.writer.input(shape, self.dtype, *self._next())

    def constant(self, values: object, dtype: str = "i4") -> int:
        array = np.array(values, dtype)
        return self.writer.tensor(array.shape, dtype, data=array)

    def moved(self, values: object) -> int:
        """A constant that is moved."""
        array = np.array(values, self.dtype)
        return self.writer.tensor(array.shape, self.dtype, *self._next(), data=array)

    def finish(
        self,
        name: str,
        inputs: list[int],
        shape: tuple[int, ...],
        options: str = "",
        count: int = 1,
        **more: Any,
    ) -> bytes:
        results = [self.writer.tensor(shape, self.dtype, *self.result) for _ in range(count)]
        self.writer.operator(name, inputs, results, options, **more)
        return self.writer.pack()


def _pad(m: Movement, name: str = "PAD") -> bytes:
    pairs = m.constant([[0, 0], [1, 1], [0, 2], [0, 0]])
    return m.finish(name, [m.input(), pairs], (2, 6, 6, 4), f"{name.title()}Options")


def _pad_v2(m: Movement) -> bytes:
    pairs = m.constant([[0, 0], [1, 1], [0, 2], [0, 0]])
    return m.finish("PADV2", [m.input(), pairs, m.moved(7)], (2, 6, 6, 4), "PadV2Options")


def _mirror_pad(m: Movement) -> bytes:
    pairs = m.constant([[0, 0], [1, 1], [0, 2], [0, 0]])
    return m.finish("MIRROR_PAD", [m.input(), pairs], (2, 6, 6, 4), "MirrorPadOptions", Mode=0)


def _strided_slice(m: Movement) -> bytes:
    places = [m.constant(each) for each in ([0, 1, 0, 0], [2, 4, 4, 4], [1, 1, 2, 1])]
    return m.finish("STRIDED_SLICE", [m.input(), *places], (2, 3, 2, 4), "StridedSliceOptions")


def _resize(m: Movement, name: str) -> bytes:
    kind = "".join(part.title() for part in name.split("_"))
    return m.finish(name, [m.input(), m.constant([8, 8])], (2, 8, 8, 4), f"{kind}Options")


def _pool(m: Movement) -> bytes:
    window = {"FilterHeight": 2, "FilterWidth": 2, "StrideH": 2, "StrideW": 2}
    return m.finish("MAX_POOL_2D", [m.input()], (2, 2, 2, 4), "Pool2DOptions", **window)


def _reduce(m: Movement, name: str) -> bytes:
    return m.finish(name, [m.input(), m.constant([3])], (2, 4, 4), "ReducerOptions")


def _scatter(m: Movement) -> bytes:
    return m.finish(
        "SCATTER_ND",
        [m.constant([[1], [3]]), m.input((2, 4)), m.constant([5, 4])],
        (5, 4),
        "ScatterNdOptions",
    )


def _sparse_to_dense(m: Movement) -> bytes:
    operands = [m.constant([1, 3]), m.constant([6]), m.moved([5, 9]), m.moved(2)]
    return m.finish("SPARSE_TO_DENSE", operands, (6,), "SparseToDenseOptions")


def _top_k(m: Movement) -> bytes:
    x, count, values = m.input((2, 5)), m.constant(2), m.writer.tensor((2, 2), m.dtype, *m.result)
    m.writer.operator("TOPK_V2", [x, count], [values, m.writer.tensor((2, 2), "i4")], "TopKV2Options")
    return m.writer.pack()


CASES: dict[str, Callable[[Movement], bytes]] = {
    "RESHAPE": lambda m: m.finish("RESHAPE", [m.input(), m.constant([8, 16])], (8, 16)),
    "SQUEEZE": lambda m: m.finish("SQUEEZE", [m.input((1, 4, 1))], (4,), "SqueezeOptions"),
    "EXPAND_DIMS": lambda m: m.finish("EXPAND_DIMS", [m.input((4, 3)), m.constant(1)], (4, 1, 3)),
    "TRANSPOSE": lambda m: m.finish("TRANSPOSE", [m.input((2, 3, 4)), m.constant([2, 0, 1])], (4, 2, 3)),
    "SLICE": lambda m: m.finish(
        "SLICE", [m.input(), m.constant([0, 1, 0, 0]), m.constant([2, 2, 4, 4])], (2, 2, 4, 4)
    ),
    "STRIDED_SLICE": _strided_slice,
    "SPLIT": lambda m: m.finish(
        "SPLIT", [m.constant(1), m.input()], (2, 2, 4, 4), "SplitOptions", 2, NumSplits=2
    ),
    "SPLIT_V": lambda m: m.finish(
        "SPLIT_V",
        [m.input(), m.constant([2, 2]), m.constant(1)],
        (2, 2, 4, 4),
        "SplitVOptions",
        2,
        NumSplits=2,
    ),
    "UNPACK": lambda m: m.finish("UNPACK", [m.input()], (4, 4, 4), "UnpackOptions", 2, Num=2, Axis=0),
    "PACK": lambda m: m.finish(
        "PACK", [m.input((3, 4)), m.input((3, 4))], (2, 3, 4), "PackOptions", ValuesCount=2, Axis=0
    ),
    "CONCATENATION": lambda m: m.finish(
        "CONCATENATION", [m.input(), m.input()], (2, 8, 4, 4), "ConcatenationOptions", Axis=1
    ),
    "PAD": _pad,
    "PADV2": _pad_v2,
    "MIRROR_PAD": _mirror_pad,
    "GATHER": lambda m: m.finish("GATHER", [m.input((4, 3)), m.constant([2, 0])], (2, 3), "GatherOptions"),
    "GATHER_ND": lambda m: m.finish(
        "GATHER_ND", [m.input((4, 3)), m.constant([[2], [0]])], (2, 3), "GatherNdOptions"
    ),
    "SCATTER_ND": _scatter,
    "DYNAMIC_UPDATE_SLICE": lambda m: m.finish(
        "DYNAMIC_UPDATE_SLICE", [m.input((4, 3)), m.input((1, 3)), m.constant([2, 0])], (4, 3)
    ),
    "EMBEDDING_LOOKUP": lambda m: m.finish(
        "EMBEDDING_LOOKUP", [m.constant([2, 0]), m.moved(np.arange(12).reshape(4, 3))], (2, 3)
    ),
    "SPARSE_TO_DENSE": _sparse_to_dense,
    "REVERSE_SEQUENCE": lambda m: m.finish(
        "REVERSE_SEQUENCE",
        [m.input((2, 4, 3)), m.constant([2, 3])],
        (2, 4, 3),
        "ReverseSequenceOptions",
        SeqDim=1,
        BatchDim=0,
    ),
    "REVERSE_V2": lambda m: m.finish("REVERSE_V2", [m.input((4, 3)), m.constant([0])], (4, 3)),
    "TILE": lambda m: m.finish("TILE", [m.input((2, 3)), m.constant([2, 1])], (4, 3), "TileOptions"),
    "BROADCAST_TO": lambda m: m.finish("BROADCAST_TO", [m.input((1, 3)), m.constant([4, 3])], (4, 3)),
    "FILL": lambda m: m.finish("FILL", [m.constant([4, 3]), m.input(())], (4, 3)),
    "SPACE_TO_BATCH_ND": lambda m: m.finish(
        "SPACE_TO_BATCH_ND", [m.input(), m.constant([2, 2]), m.constant([[0, 0], [0, 2]])], (8, 2, 3, 4)
    ),
    "BATCH_TO_SPACE_ND": lambda m: m.finish(
        "BATCH_TO_SPACE_ND",
        [m.input((4, 2, 2, 3)), m.constant([2, 2]), m.constant([[0, 0], [0, 0]])],
        (1, 4, 4, 3),
    ),
    "SPACE_TO_DEPTH": lambda m: m.finish(
        "SPACE_TO_DEPTH", [m.input()], (2, 2, 2, 16), "SpaceToDepthOptions", BlockSize=2
    ),
    "DEPTH_TO_SPACE": lambda m: m.finish(
        "DEPTH_TO_SPACE", [m.input()], (2, 8, 8, 1), "DepthToSpaceOptions", BlockSize=2
    ),
    "DILATE": lambda m: m.finish(
        "DILATE", [m.input((3, 3)), m.constant([2, 1]), m.moved(5)], (5, 3), "DilateOptions"
    ),
    "MATRIX_DIAG": lambda m: m.finish("MATRIX_DIAG", [m.input((2, 3))], (2, 3, 3), "MatrixDiagOptions"),
    "MATRIX_SET_DIAG": lambda m: m.finish(
        "MATRIX_SET_DIAG", [m.input((2, 3, 3)), m.input((2, 3))], (2, 3, 3), "MatrixSetDiagOptions"
    ),
    "RESIZE_NEAREST_NEIGHBOR": lambda m: _resize(m, "RESIZE_NEAREST_NEIGHBOR"),
    "RESIZE_BILINEAR": lambda m: _resize(m, "RESIZE_BILINEAR"),
    "MAX_POOL_2D": _pool,
    "REDUCE_MAX": lambda m: _reduce(m, "REDUCE_MAX"),
    "REDUCE_MIN": lambda m: _reduce(m, "REDUCE_MIN"),
    "MAXIMUM": lambda m: m.finish("MAXIMUM", [m.input(), m.input()], SHAPE, "MaximumMinimumOptions"),
    "MINIMUM": lambda m: m.finish("MINIMUM", [m.input(), m.input()], SHAPE, "MaximumMinimumOptions"),
    "TOPK_V2": _top_k,
    "SELECT_V2": lambda m: m.finish(
        "SELECT_V2",
        [m.constant([True, False, True], "?"), m.input((4, 3)), m.input((4, 3))],
        (4, 3),
        "SelectV2Options",
    ),
}
