"""Models of one operator with operands, drawn at random: one function per operator of the file format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import tflite

from tests.tflite_writer import TYPES, Array, Writer

SCALE = 0.05  # of int8 and int16


@dataclass
class Draw:
    """A model that is being drawn, and the inputs of a call; `dtype`: of the operator's values."""

    rng: np.random.Generator
    dtype: str
    writer: Writer = field(default_factory=Writer)
    inputs: list[Array] = field(default_factory=list[Array])

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def flag(self) -> bool:
        return bool(self.rng.integers(2))

    def shape(self, low: int = 1, high: int = 4) -> tuple[int, ...]:
        """Of a rank between these."""
        return tuple(int(n) for n in self.rng.integers(1, 6, self.number(low, high)))

    def values(self, shape: tuple[int, ...], dtype: str = "") -> Array:
        kind = np.dtype(dtype or self.dtype)
        if kind.kind == "f":
            return (self.rng.standard_normal(shape) * 10.0 ** self.rng.uniform(-2, 2)).astype(kind)
        if kind.kind == "b":
            return self.rng.integers(0, 2, shape).astype(bool)
        info = np.iinfo(kind)
        return self.rng.integers(max(info.min, -(2**31)), min(info.max, 2**31 - 1), shape).astype(kind)

    def indices(self, shape: tuple[int, ...], *extents: int) -> Array:
        """Tuples of indices, one below each extent, along a last axis; int32."""
        columns = [self.rng.integers(0, extent, shape) for extent in extents]
        return np.stack(columns, axis=-1).astype(np.int32)

    def given(self, array: Array) -> int:
        self.inputs.append(array)
        return self._tensor(array, self.writer.input)

    def constant(self, array: Array) -> int:
        return self._tensor(array, self.writer.tensor, data=array)

    def either(self, array: Array) -> int:
        """An input or a constant."""
        return self.given(array) if self.flag() else self.constant(array)

    def result(self, shape: tuple[int, ...], dtype: str = "") -> int:
        return self._tensor(np.empty(shape, dtype or self.dtype), self.writer.tensor)

    def scaled(self, array: Array) -> int:
        """An input of magnitudes around 1, int8 or int16, of a scale and a zero point that are drawn."""
        self.inputs.append(array)
        return self.writer.input(array.shape, self.dtype, *self._quantisation(array.dtype.itemsize))

    def scaled_result(self, shape: tuple[int, ...]) -> int:
        """A result of such magnitudes."""
        return self.writer.tensor(shape, self.dtype, *self._quantisation(np.dtype(self.dtype).itemsize))

    def _quantisation(self, size: int) -> tuple[float, int]:
        scale = float(self.rng.uniform(0.5, 3)) / (1 << (8 * size - 1))
        return scale, int(self.rng.integers(-100, 101)) if size == 1 else 0

    @staticmethod
    def _tensor(array: Array, make: Callable[..., int], **more: Array) -> int:
        scale = SCALE if array.dtype.itemsize < 4 and array.dtype.kind == "i" else None
        return make(array.shape, array.dtype.str[1:], scale, **more)


Drawer = Callable[[Draw, str], None]


def _plain_binary(d: Draw, name: str) -> None:
    shape = d.shape()
    second = shape if name == "ATAN2" or d.flag() else shape[-1:]  # of one rank, where LiteRT asks for it
    a, b = d.values(shape), d.values(second)
    if name == "POW":
        a, b = (np.abs(a) + 0.01, np.clip(b, -3, 3)) if d.dtype == "f4" else (a % 19 - 9, b % 8)
    elif name in ("FLOOR_DIV", "FLOOR_MOD", "DIV") and d.dtype != "f4":
        b = b // (np.iinfo(d.dtype).max // 8 + 1)
        b[(b == 0) | (b == -1)] = 3  # the references do not divide by 0, nor the smallest number by -1
    elif name == "RIGHT_SHIFT" and d.flag():
        b = b % 9
    operands = [d.given(np.asarray(x, d.dtype)) for x in (a, b)]
    d.writer.operator(name, operands, d.result(shape), "DivOptions" if name == "DIV" else "")


def _arithmetic(d: Draw, name: str) -> None:
    """Two values of one shape and one quantisation."""
    shape = d.shape()
    options = "".join(word.capitalize() for word in name.split("_")) + "Options"
    options = "MaximumMinimumOptions" if name in ("MAXIMUM", "MINIMUM") else options
    operands = [d.given(d.values(shape)) for _ in range(2)]
    d.writer.operator(name, operands, d.result(shape), options)


def _compare(d: Draw, name: str) -> None:
    """Many are equal."""
    shape = d.shape()
    options = "".join(word.capitalize() for word in name.split("_")) + "Options"
    operands = [d.given((d.values(shape) % 3).astype(d.dtype)) for _ in range(2)]
    d.writer.operator(name, operands, d.result(shape, "?"), options)


def _logical(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    operands = [d.given(x)] if name == "LOGICAL_NOT" else [d.given(x), d.given(d.values(x.shape))]
    d.writer.operator(name, operands, d.result(x.shape))


def _cast(d: Draw, name: str) -> None:
    x = (d.values(d.shape()) % 100).astype(d.dtype) if d.dtype != "?" else d.values(d.shape())
    to = str(
        d.rng.choice([kind for kind in ("f4", "f2", "i1", "u1", "i2", "i4", "i8", "?") if kind != d.dtype])
    )
    d.writer.operator(
        name,
        [d.writer.input(x.shape, d.dtype)],
        d.writer.tensor(x.shape, to),
        "CastOptions",
        InDataType=TYPES[np.dtype(d.dtype)],
        OutDataType=TYPES[np.dtype(to)],
    )
    d.inputs.append(x)


def _quantized_sums(d: Draw, name: str) -> None:
    """CUMSUM or ADD_N of int8; scales and zero points of input and result differ."""
    shape, (before, after) = d.shape(), d.rng.integers(-128, 128, 2).tolist()
    scales = d.rng.uniform(0.02, 0.1), d.rng.uniform(0.1, 0.8)
    result = d.writer.tensor(shape, "i1", scales[1], after)
    operands = [
        d.writer.input(shape, "i1", scales[0], before)
        for _ in range(d.number(2, 20) if name == "ADD_N" else 1)
    ]
    d.inputs += [d.values(shape) for _ in operands]
    if name == "ADD_N":
        d.writer.operator(name, operands, result, "AddNOptions")
        return
    axis = d.constant(np.array(d.number(0, len(shape) - 1), np.int32))
    options = {"Exclusive": d.flag(), "Reverse": d.flag()}
    d.writer.operator("CUMSUM", [*operands, axis], result, "CumsumOptions", **options)


def _cumsum(d: Draw, name: str) -> None:
    x = d.values(d.shape()) // 8 if d.dtype != "f4" else d.values(d.shape())
    operands = [d.given(x.astype(d.dtype)), d.constant(np.array(d.number(0, x.ndim - 1), np.int32))]
    options = {"Exclusive": d.flag(), "Reverse": d.flag()}
    d.writer.operator(name, operands, d.result(x.shape), "CumsumOptions", **options)


def _select(d: Draw, name: str) -> None:
    shape = d.shape()
    condition, operands = d.rng.integers(0, 2, shape).astype(bool), [d.values(shape) for _ in range(2)]
    d.writer.operator(name, [d.given(condition), *map(d.given, operands)], d.result(shape))


def _squeeze(d: Draw, name: str) -> None:
    x = d.values((1, *d.shape(1, 2), 1))
    d.writer.operator(name, [d.given(x)], d.result(tuple(n for n in x.shape if n > 1)), "SqueezeOptions")


def _split_v(d: Draw, name: str) -> None:
    x = d.values((*d.shape(1, 2), 7))
    sizes = np.array([3, d.number(1, 3)])
    sizes = np.append(sizes, 7 - sizes.sum()).astype(np.int32)
    operands = [d.given(x), d.constant(sizes), d.constant(np.array(x.ndim - 1, np.int32))]
    results = [d.result((*x.shape[:-1], int(size))) for size in sizes]
    d.writer.operator(name, operands, results, "SplitVOptions", NumSplits=3)


def _negative(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    d.writer.operator(name, [d.given(x)], d.result(x.shape), "NegOptions" if name == "NEG" else "")


def _prelu(d: Draw, name: str) -> None:
    x = d.values(d.shape(2, 4))
    slopes = d.values((1,) * (x.ndim - 2) + x.shape[-1:], "" if d.dtype == "f4" else "i1")
    d.writer.operator(name, [d.given(x), d.constant(slopes)], d.result(x.shape))


def _gather_short(d: Draw, _name: str) -> None:
    """Along the first axis, by indices of int16."""
    x = d.values(d.shape(1, 3))
    indices = d.rng.integers(0, len(x), d.shape(1, 2)).astype(np.int16)
    operands = [d.given(x), d.writer.input(indices.shape, "i2")]
    d.inputs.append(indices)
    d.writer.operator("GATHER", operands, d.result((*indices.shape, *x.shape[1:])), "GatherOptions", Axis=0)


def _sign(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    x.reshape(-1)[0] = 0
    d.writer.operator(name, [d.given(x)], d.result(x.shape))


def _broadcast_args(d: Draw, name: str) -> None:
    shape = d.shape()
    first = np.where(d.rng.random(len(shape)) < 0.3, 1, shape).astype(d.dtype)
    second = np.where(first > 1, d.rng.choice([1, 0], len(shape)), 1) * (first - 1) + 1
    second = second[d.number(0, len(shape) - 1) :].astype(d.dtype)
    d.writer.operator(name, [d.given(first), d.given(second)], d.result((len(shape),)))


def _dynamic_update_slice(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    update = d.values(tuple(d.number(1, n) for n in x.shape))
    start = d.rng.integers(-3, 8, x.ndim).astype(np.int32)
    d.writer.operator(name, [d.given(x), d.given(update), d.either(start)], d.result(x.shape))


def _embedding_lookup(d: Draw, name: str) -> None:
    table = d.values((d.number(2, 6), *d.shape(1, 2)))
    ids = d.rng.integers(0, len(table), d.number(1, 5)).astype(np.int32)
    operands = [d.given(ids), d.constant(table)]
    d.writer.operator(name, operands, d.result((len(ids), *table.shape[1:])))


def _embedding_lookup_scaled(d: Draw, _name: str) -> None:
    """Of an int8 table, a scale for each row."""
    table = d.values((d.number(2, 6), *d.shape(1, 2)))
    ids = d.rng.integers(0, len(table), d.number(1, 5)).astype(np.int32)
    scales = d.rng.uniform(0.01, 0.1, len(table)).astype(np.float32)
    rows = d.writer.tensor(table.shape, d.dtype, scales, data=table)
    result = d.writer.tensor((len(ids), *table.shape[1:]), "f4")
    d.writer.operator("EMBEDDING_LOOKUP", [d.given(ids), rows], result)


def _gather_nd(d: Draw, name: str) -> None:
    x = d.values(d.shape(2, 4))
    depth = d.number(1, x.ndim)
    indices = d.indices(d.shape(1, 2), *x.shape[:depth])
    result = d.result((*indices.shape[:-1], *x.shape[depth:]))
    d.writer.operator(name, [d.given(x), d.either(indices)], result)


def _gather(d: Draw, name: str) -> None:
    """With batch dimensions."""
    x = d.values(d.shape(2, 4))
    batched = d.number(1, x.ndim - 1)
    axis = d.number(batched, x.ndim - 1)
    indices = d.rng.integers(0, x.shape[axis], (*x.shape[:batched], *d.shape(0, 2))).astype(np.int32)
    result = d.result((*x.shape[:axis], *indices.shape[batched:], *x.shape[axis + 1 :]))
    operands = [d.given(x), d.either(indices)]
    d.writer.operator(name, operands, result, "GatherOptions", Axis=axis, BatchDims=batched)


def _scatter_nd(d: Draw, name: str) -> None:
    shape = d.shape(2, 3)
    depth = d.number(1, len(shape))
    indices = d.indices((d.number(1, 4),), *shape[:depth])
    updates = d.values((len(indices), *shape[depth:]))
    if updates.dtype.kind == "i":
        updates //= 16  # LiteRT's sums of int32 that overflow are undefined
    operands = [d.either(indices), d.given(updates), d.constant(np.array(shape, np.int32))]
    d.writer.operator(name, operands, d.result(shape))


def _l2_pool_2d(d: Draw, name: str) -> None:
    x = d.values(d.shape(4, 4))
    height, width = (d.number(1, n) for n in x.shape[1:3])
    strides = d.number(1, 2), d.number(1, 2)
    same = d.flag()
    rows, columns = (
        -(-n // s) if same else (n - k) // s + 1
        for n, k, s in zip(x.shape[1:3], (height, width), strides, strict=True)
    )
    d.writer.operator(
        name,
        [d.given(x)],
        d.result((x.shape[0], rows, columns, x.shape[3])),
        "Pool2DOptions",
        Padding=tflite.Padding.SAME if same else tflite.Padding.VALID,
        StrideH=strides[0],
        StrideW=strides[1],
        FilterHeight=height,
        FilterWidth=width,
        FusedActivationFunction=d.flag() and tflite.ActivationFunctionType.RELU6,
    )


def _reduce_truth(d: Draw, name: str) -> None:
    x = d.rng.random(d.shape()) < (0.9 if name == "REDUCE_ALL" else 0.1)
    axes = [axis for axis in range(x.ndim) if d.flag()] or [0]
    keep = d.flag()
    shape = x.any(axis=tuple(axes), keepdims=keep).shape
    operands = [d.given(x), d.constant(np.array(axes, np.int32))]
    d.writer.operator(name, operands, d.result(shape), "ReducerOptions", KeepDims=keep)


def _zeros_like(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    d.writer.operator(name, [d.given(x)], d.result(x.shape))


def _rank(d: Draw, name: str) -> None:
    d.writer.operator(name, [d.given(d.values(d.shape()))], d.result((), "i4"))


def _top_k(d: Draw, name: str) -> None:
    x = d.values(d.shape(1, 3))
    if d.flag():  # some are equal
        x = (x // (np.abs(x).max() / 3 + 1)).astype(d.dtype)
    count = d.number(1, x.shape[-1])
    shape = (*x.shape[:-1], count)
    operands = [d.given(x), d.constant(np.array(count, np.int32))]
    d.writer.operator(name, operands, [d.result(shape), d.result(shape, "i4")])


def _one_hot(d: Draw, name: str) -> None:
    indices = d.rng.integers(-1, 6, d.shape(1, 3)).astype(np.int32)
    depth, axis = d.number(1, 5), d.number(-1, indices.ndim)
    at = indices.ndim if axis == -1 else axis
    operands = [
        d.given(indices),
        d.constant(np.array(depth, np.int32)),
        *(d.either(d.values(())) for _ in range(2)),
    ]
    result = d.result((*indices.shape[:at], depth, *indices.shape[at:]))
    d.writer.operator(name, operands, result, "OneHotOptions", Axis=axis)


def _reverse_sequence(d: Draw, name: str) -> None:
    x = d.values(d.shape(2, 4))
    along, batch = (int(axis) for axis in d.rng.permutation(x.ndim)[:2])
    lengths = d.rng.integers(0, x.shape[along] + 1, x.shape[batch]).astype(d.rng.choice(["i4", "i8"]))
    operands = [d.given(x), d.either(lengths)]
    d.writer.operator(
        name, operands, d.result(x.shape), "ReverseSequenceOptions", SeqDim=along, BatchDim=batch
    )


def _matrix_diag(d: Draw, name: str) -> None:
    x = d.values(d.shape(1, 3))
    d.writer.operator(name, [d.given(x)], d.result((*x.shape, x.shape[-1])))


def _matrix_set_diag(d: Draw, name: str) -> None:
    x = d.values(d.shape(2, 4))
    diagonal = d.values((*x.shape[:-2], min(x.shape[-2:])))
    d.writer.operator(name, [d.given(x), d.given(diagonal)], d.result(x.shape))


def _segment_sum(d: Draw, name: str) -> None:
    x = d.values(d.shape(1, 3))
    if d.dtype == "i4":
        x //= 64
    segments = np.cumsum([0, *d.rng.integers(0, 2, len(x) - 1)]).astype(np.int32)
    result = d.result((int(segments[-1]) + 1, *x.shape[1:]))
    d.writer.operator(name, [d.given(x), d.constant(segments)], result)


def _unsorted_segments(d: Draw, name: str) -> None:
    x = d.values(d.shape(1, 3))
    if d.dtype == "i4":
        x = x % 10 - 5
    rank = d.number(1, x.ndim)
    count = d.number(1, 4)
    segments = d.rng.integers(-1, count, x.shape[:rank]).astype(np.int32)
    segments = d.either(segments) if name.endswith("SUM") else d.constant(segments)
    operands = [d.given(x), segments, d.constant(np.array(count, np.int32))]
    d.writer.operator(name, operands, d.result((count, *x.shape[rank:])))


def _local_response_normalization(d: Draw, name: str) -> None:
    x = d.values(d.shape(4, 4))
    fields = {"Bias": d.rng.uniform(0.5, 2), "Alpha": d.rng.uniform(0.01, 1), "Beta": d.rng.uniform(0.2, 1.5)}
    options = "LocalResponseNormalizationOptions"
    d.writer.operator(name, [d.given(x)], d.result(x.shape), options, Radius=d.number(0, 3), **fields)


def _bitcast(d: Draw, name: str) -> None:
    to = {"f4": "i4", "i4": "i2", "i2": "i4", "i1": "i8", "i8": "i1"}[d.dtype]
    before, after = np.dtype(d.dtype).itemsize, np.dtype(to).itemsize
    shape = d.shape(1, 3)
    x = d.values((*shape, after // before) if after > before else shape)
    result = shape if after >= before else (*shape, before // after)
    d.writer.operator(name, [d.given(x)], d.result(result, to))


def _arg_extremum(d: Draw, name: str) -> None:
    x = d.values(d.shape(2, 4))
    axis = d.number(0, x.ndim - 1)
    operands = [d.given(x), d.constant(np.array(axis, np.int32))]
    options = "ArgMaxOptions" if name == "ARG_MAX" else "ArgMinOptions"
    result = d.result((*x.shape[:axis], *x.shape[axis + 1 :]), "i4")
    d.writer.operator(name, operands, result, options, OutputType=tflite.TensorType.INT32)


def _range(d: Draw, name: str) -> None:
    """Numbers as a model's only result are none that it computes: they are compared with an input."""
    step = d.number(1, 4) * (1 if d.flag() else -1) * (0.3 if d.dtype == "f4" else 1)
    start, limit = d.number(-5, 5), d.number(1, 30) * np.sign(step) + 5 * np.sign(step)
    limits = [np.array(n, d.dtype) for n in (start, limit, step)]
    count = int(np.ceil((float(limits[1]) - float(limits[0])) / float(limits[2])))
    numbers = d.result((count,))
    d.writer.operator(name, [d.constant(n) for n in limits], numbers, inner=True)
    _larger(d, numbers, (count,), d.dtype)


def _where(d: Draw, name: str) -> None:
    condition = d.values(d.shape(1, 3)) * (d.rng.random() < 0.7)
    condition = (condition > 0).astype(d.dtype)
    condition.reshape(-1)[0] = 1
    shape = np.argwhere(condition).shape
    found = d.result(shape, "i8")
    d.writer.operator(name, [d.constant(condition)], found, inner=True)
    _larger(d, found, shape, "i8")


def _unique(d: Draw, name: str) -> None:
    x = np.round(d.values((d.number(1, 12),)) % 4).astype(d.dtype)
    values, places = d.result(np.unique(x).shape), d.result(x.shape, "i4")
    options = {"IdxOutType": tflite.TensorType.INT32}
    d.writer.operator(name, [d.constant(x)], [values, places], "UniqueOptions", inner=True, **options)
    _larger(d, values, np.unique(x).shape, d.dtype)
    _larger(d, places, x.shape, "i4")


def _larger(d: Draw, x: int, shape: tuple[int, ...], dtype: str) -> None:
    other = d.given(np.zeros((1,), dtype))
    d.writer.operator("MAXIMUM", [x, other], d.result(shape, dtype))


_MOVED = "f4 i1 i2 i4"
# The element types, and what draws the operator.
OPERATORS: Mapping[str, tuple[str, Drawer]] = {
    "ABS": ("i4", _negative),
    "ADD": ("i8", _arithmetic),
    "ADD_N": ("i1", _quantized_sums),
    "ARG_MAX": ("i2", _arg_extremum),
    "ARG_MIN": ("i2", _arg_extremum),
    "ATAN2": ("f4 f2", _plain_binary),
    "BITCAST": ("f4 i1 i2 i4 i8", _bitcast),
    "BITWISE_XOR": ("i1 i2 i4 u1 u4", _plain_binary),
    "CAST": (f"{_MOVED} i8 ? f2 u1 u4", _cast),
    "BROADCAST_ARGS": ("i4 i8", _broadcast_args),
    "CUMSUM": ("f4 i4 i8", _cumsum),
    "CUMSUM quantized": ("i1", _quantized_sums),
    "DIV": ("i4", _plain_binary),
    "DYNAMIC_UPDATE_SLICE": (f"{_MOVED} i8 ?", _dynamic_update_slice),
    "EMBEDDING_LOOKUP": ("f4 i1", _embedding_lookup),
    "EMBEDDING_LOOKUP scaled": ("i1", _embedding_lookup_scaled),
    "EQUAL": ("i2 f2", _compare),
    "FLOOR_DIV": (_MOVED, _plain_binary),
    "FLOOR_MOD": (f"{_MOVED} i8", _plain_binary),
    "GATHER": (f"{_MOVED} i8 ?", _gather),
    "GATHER short": ("f4 i1", _gather_short),
    "GATHER_ND": (_MOVED, _gather_nd),
    "GREATER": ("i2", _compare),
    "GREATER_EQUAL": ("i2 f2", _compare),
    "L2_POOL_2D": ("f4", _l2_pool_2d),
    "LESS": ("i2 f2", _compare),
    "LOGICAL_AND": ("?", _logical),
    "LOGICAL_NOT": ("?", _logical),
    "LOGICAL_OR": ("?", _logical),
    "LOCAL_RESPONSE_NORMALIZATION": ("f4", _local_response_normalization),
    "MATRIX_DIAG": (f"{_MOVED} i8", _matrix_diag),
    "MATRIX_SET_DIAG": (f"{_MOVED} i8", _matrix_set_diag),
    "MAXIMUM": ("i4 i8 u1", _arithmetic),
    "MINIMUM": ("i4 i8 u1", _arithmetic),
    "MUL": ("i8 u4", _arithmetic),
    "NOT_EQUAL": ("f4 i1 i2 i4 i8 ?", _compare),
    "NEG": ("i1 i4 i8", _negative),
    "ONE_HOT": (f"{_MOVED} ?", _one_hot),
    "POW": ("f4 i4", _plain_binary),
    "PRELU": ("i2 f4", _prelu),
    "RANGE": ("f4 i4 i8", _range),
    "RANK": ("f4", _rank),
    "REDUCE_ALL": ("?", _reduce_truth),
    "REDUCE_ANY": ("?", _reduce_truth),
    "REVERSE_SEQUENCE": (f"{_MOVED} i8", _reverse_sequence),
    "RIGHT_SHIFT": ("i1 i2 i4 u1 u4", _plain_binary),
    "SCATTER_ND": ("f4 i1 u1 i2 i4 i8 ?", _scatter_nd),
    "SEGMENT_SUM": ("f4 i4", _segment_sum),
    "RELU_0_TO_1": ("f4 i1", _negative),
    "SELECT": (f"{_MOVED} i8 ? f2", _select),
    "SELECT_V2": (f"{_MOVED} i8 ? f2", _select),
    "SPLIT_V": (_MOVED, _split_v),
    "SQUEEZE": (f"{_MOVED} i8 ?", _squeeze),
    "SIGN": ("f4 i4", _sign),
    "SQUARED_DIFFERENCE": ("i4", _arithmetic),
    "SUB": ("i8", _arithmetic),
    "TOPK_V2": (f"{_MOVED} i8", _top_k),
    "UNIQUE": ("f4 i1 i4 i8", _unique),
    "UNSORTED_SEGMENT_MAX": ("f4 i4", _unsorted_segments),
    "UNSORTED_SEGMENT_MIN": ("f4 i4", _unsorted_segments),
    "UNSORTED_SEGMENT_PROD": ("f4 i4", _unsorted_segments),
    "UNSORTED_SEGMENT_SUM": ("f4 i4", _unsorted_segments),
    "WHERE": ("f4 i1 i4 ?", _where),
    "ZEROS_LIKE": ("f4 i1 i4 i8", _zeros_like),
}


def draw_model(
    name: str, dtype: str, seed: int, operators: Mapping[str, tuple[str, Drawer]] = OPERATORS
) -> tuple[bytes, list[Array]]:
    """A model of the operator, and the inputs of a call."""
    draw = Draw(np.random.default_rng([seed, *name.encode(), *dtype.encode()]), dtype)
    operators[name][1](draw, name.split()[0])
    return draw.writer.pack(), draw.inputs
