"""Models of one operator of any element type: of what `drawn_models` leaves to models that are files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tflite

from tests.frontend import drawn_models
from tests.frontend.drawn_models import SCALE, Draw, Drawer
from tests.tflite_writer import Array


def _options(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_")) + "Options"


def _reduction(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    given, result = d.given, d.result
    if name == "REDUCE_PROD" and d.dtype in ("i1", "i2"):
        given, result = d.scaled, d.scaled_result
    elif name == "REDUCE_PROD":
        x = (x % 3 + 1).astype(d.dtype) if d.dtype != "?" else x
    elif x.dtype.itemsize >= 4:
        x = x // 64 if x.dtype.kind in "iu" else x
    axes = [axis for axis in range(x.ndim) if d.flag()] or [0]
    keep = d.flag()
    shape = x.any(axis=tuple(axes), keepdims=keep).shape
    operands = [given(x), d.constant(np.array(axes, np.int32))]
    d.writer.operator(name, operands, result(shape), "ReducerOptions", KeepDims=keep)


def _pad(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    pairs = d.rng.integers(0, 3, (x.ndim, 2)).astype(np.int32)
    shape = tuple(int(n) for n in np.array(x.shape) + pairs.sum(axis=1))
    fill = [d.either(d.values(()))] if name == "PADV2" else []
    d.writer.operator(
        name,
        [d.given(x), d.constant(pairs), *fill],
        d.result(shape),
        "PadV2Options" if fill else "PadOptions",
    )


def _mirror_pad(d: Draw, name: str) -> None:
    x = d.values(d.shape(1, 3))
    mode = tflite.MirrorPadMode.SYMMETRIC
    pairs = np.stack([d.rng.integers(0, n + 1, 2) for n in x.shape]).astype(np.int32)
    shape = tuple(int(n) for n in np.array(x.shape) + pairs.sum(axis=1))
    d.writer.operator(name, [d.given(x), d.constant(pairs)], d.result(shape), "MirrorPadOptions", Mode=mode)


def _concatenation(d: Draw, name: str) -> None:
    shape = d.shape()
    axis, count = d.number(0, len(shape) - 1), d.number(2, 3)
    operands = [d.given(d.values(shape)) for _ in range(count)]
    result = (*shape[:axis], count * shape[axis], *shape[axis + 1 :])
    d.writer.operator(name, operands, d.result(result), "ConcatenationOptions", Axis=axis)


def _pack(d: Draw, name: str) -> None:
    shape = d.shape(1, 3)
    axis, count = d.number(0, len(shape)), d.number(2, 3)
    operands = [d.given(d.values(shape)) for _ in range(count)]
    result = (*shape[:axis], count, *shape[axis:])
    d.writer.operator(name, operands, d.result(result), "PackOptions", Axis=axis, ValuesCount=count)


def _unpack(d: Draw, name: str) -> None:
    x = d.values(d.shape(2, 4))
    axis = d.number(0, x.ndim - 1)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    results = [d.result(shape) for _ in range(x.shape[axis])]
    d.writer.operator(name, [d.given(x)], results, "UnpackOptions", Axis=axis, Num=len(results))


def _split(d: Draw, name: str) -> None:
    x = d.values((*d.shape(1, 3), 6))
    operands = [d.constant(np.array(x.ndim - 1, np.int32)), d.given(x)]
    results = [d.result((*x.shape[:-1], 3)) for _ in range(2)]
    d.writer.operator(name, operands, results, "SplitOptions", NumSplits=2)


def _slice(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    begin = np.array([d.number(0, n - 1) for n in x.shape], np.int32)
    size = np.array([d.number(1, n - b) for n, b in zip(x.shape, begin, strict=True)], np.int32)
    operands = [d.given(x), d.constant(begin), d.constant(size)]
    d.writer.operator(name, operands, d.result(tuple(size.tolist())), "SliceOptions")


def _strided_slice(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    steps = d.rng.integers(1, 3, x.ndim).astype(np.int32)
    end = np.array(x.shape, np.int32)
    taken = x[tuple(slice(None, None, int(step)) for step in steps)]
    operands = [d.given(x), *map(d.constant, (np.zeros_like(end), end, steps))]
    d.writer.operator(name, operands, d.result(taken.shape), "StridedSliceOptions")


def _transpose(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    order = d.rng.permutation(x.ndim).astype(np.int32)
    shape = tuple(x.shape[axis] for axis in order)
    d.writer.operator(name, [d.given(x), d.constant(order)], d.result(shape), "TransposeOptions")


def _reverse(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    axis = np.array([d.number(0, x.ndim - 1)], np.int32)
    d.writer.operator(name, [d.given(x), d.constant(axis)], d.result(x.shape), "ReverseV2Options")


def _tile(d: Draw, name: str) -> None:
    x = d.values(d.shape(1, 3))
    times = d.rng.integers(1, 3, x.ndim).astype(np.int32)
    shape = tuple(int(n) for n in np.array(x.shape) * times)
    d.writer.operator(name, [d.given(x), d.constant(times)], d.result(shape), "TileOptions")


def _broadcast_to(d: Draw, name: str) -> None:
    shape = d.shape(2, 4)
    x = d.values((*(1 if d.flag() else n for n in shape[1:]),))
    target = d.constant(np.array(shape, np.int32))
    d.writer.operator(name, [d.given(x), target], d.result(shape), "BroadcastToOptions")


def _fill(d: Draw, name: str) -> None:
    shape = d.shape()
    operands = [d.constant(np.array(shape, np.int32)), d.given(d.values(()))]
    d.writer.operator(name, operands, d.result(shape), "FillOptions")


def _gather_first(d: Draw, _name: str) -> None:
    x = d.values(d.shape(1, 3))
    indices = d.rng.integers(0, len(x), d.shape(1, 2)).astype(np.int32)
    result = d.result((*indices.shape, *x.shape[1:]))
    d.writer.operator("GATHER", [d.given(x), d.either(indices)], result, "GatherOptions", Axis=0)


def _space_to_batch(d: Draw, name: str) -> None:
    n, h, w, c = (d.number(1, 3) for _ in range(4))
    x = d.values((n, 2 * h - 1, 3 * w, c))
    pads = np.array([[1, 0], [0, 0]], np.int32)
    operands = [d.given(x), d.constant(np.array([2, 3], np.int32)), d.constant(pads)]
    d.writer.operator(name, operands, d.result((6 * n, h, w, c)), "SpaceToBatchNDOptions")


def _batch_to_space(d: Draw, name: str) -> None:
    n, h, w, c = (d.number(1, 3) for _ in range(4))
    x = d.values((6 * n, h, w, c))
    crops = np.array([[1, 0], [0, 0]], np.int32)
    operands = [d.given(x), d.constant(np.array([2, 3], np.int32)), d.constant(crops)]
    d.writer.operator(name, operands, d.result((n, 2 * h - 1, 3 * w, c)), "BatchToSpaceNDOptions")


def _space_to_depth(d: Draw, name: str) -> None:
    n, h, w, c = (d.number(1, 3) for _ in range(4))
    deep, wide = (n, h, w, 4 * c), (n, 2 * h, 2 * w, c)
    before, after = (wide, deep) if name == "SPACE_TO_DEPTH" else (deep, wide)
    operands = [d.given(d.values(before))]
    d.writer.operator(name, operands, d.result(after), _options(name), BlockSize=2)


def _reshape(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    target = d.constant(np.array([x.size], np.int32))
    d.writer.operator(name, [d.given(x), target], d.result((x.size,)), "ReshapeOptions")


def _expand_dims(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    axis = d.constant(np.array(0, np.int32))
    d.writer.operator(name, [d.given(x), axis], d.result((1, *x.shape)), "ExpandDimsOptions")


def _shape(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    result = d.result((x.ndim,), "i4")
    d.writer.operator(name, [d.given(x)], result, "ShapeOptions", OutType=tflite.TensorType.INT32)


def _resize(d: Draw, name: str) -> None:
    x = d.values(d.shape(4, 4))
    size = d.rng.integers(1, 8, 2).astype(np.int32)
    shape = (x.shape[0], *size.tolist(), x.shape[3])
    operands = [d.given(x), d.constant(size)]
    options = "ResizeBilinearOptions" if name == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    d.writer.operator(name, operands, d.result(shape), options, HalfPixelCenters=True)


def _pool(d: Draw, name: str) -> None:
    x = d.values(d.shape(4, 4))
    size = [d.number(1, n) for n in x.shape[1:3]]
    shape = (x.shape[0], *(n - k + 1 for n, k in zip(x.shape[1:3], size, strict=True)), x.shape[3])
    fields = {"FilterHeight": size[0], "FilterWidth": size[1], "StrideH": 1, "StrideW": 1}
    padding = tflite.Padding.VALID
    d.writer.operator(name, [d.given(x)], d.result(shape), "Pool2DOptions", Padding=padding, **fields)


def _unary(d: Draw, name: str) -> None:
    x = d.values(d.shape())
    if name in ("SQRT", "RSQRT", "LOG"):
        x = np.abs(x / 2).astype(d.dtype) if x.dtype.kind in "fi" else x
    options = {"LEAKY_RELU": "LeakyReluOptions", "GELU": "GeluOptions", "SOFTMAX": "SoftmaxOptions"}.get(
        name, ""
    )
    fields = {"LEAKY_RELU": {"Alpha": 0.2}, "SOFTMAX": {"Beta": 1.0}}.get(name, {})
    d.writer.operator(name, [d.given(x)], d.result(x.shape), options, **fields)


def _bucketize(d: Draw, name: str) -> None:
    x = d.values(d.shape()) % 9
    d.writer.builder.StartVector(4, 3, 4)
    for number in (6.0, 3.5, 1.0):
        d.writer.builder.PrependFloat32(number)
    bounds = d.writer.builder.EndVector()
    operands = [d.given(x.astype(d.dtype))]
    d.writer.operator(name, operands, d.result(x.shape, "i4"), "BucketizeOptions", Boundaries=bounds)


def _sparse_to_dense(d: Draw, name: str) -> None:
    size = d.number(3, 9)
    places = np.sort(d.rng.permutation(size)[:3]).astype(np.int32)
    operands = [d.constant(places), d.constant(np.array([size], np.int32))]
    operands += [d.given(d.values((3,))), d.either(d.values(()))]
    d.writer.operator(name, operands, d.result((size,)), "SparseToDenseOptions")


def _dilate(d: Draw, name: str) -> None:
    x = d.values(d.shape(1, 3))
    steps = d.rng.integers(1, 3, x.ndim).astype(np.int32)
    shape = tuple(int(n) for n in (np.array(x.shape) - 1) * steps + 1)
    operands = [d.given(x), d.constant(steps), d.constant(d.values(()))]
    d.writer.operator(name, operands, d.result(shape), "DilateOptions")


def _division(d: Draw, name: str) -> None:
    """Of quotients that are not so small that the references' C is undefined, and none by 0."""
    shape = d.shape()
    size = np.dtype(d.dtype).itemsize
    scales = d.rng.uniform(0.5, 3, 3) / (1 << (8 * size - 1))
    points = d.rng.integers(-100, 101, 3) + 128 * (d.dtype == "u1") if size == 1 else np.zeros(3, np.int64)
    low, high = np.iinfo(d.dtype).min, np.iinfo(d.dtype).max
    operands: list[int] = []
    for (scale, point), least in zip(zip(scales[:2], points, strict=False), (8, 1), strict=True):
        signs = np.where((d.rng.random(shape) < 0.5) | (point + least > high), -1, 1)
        signs = np.where(point - least < low, 1, signs)
        magnitudes = d.rng.integers(least, 1 << 8 * size, shape)
        array = np.clip(point + signs * magnitudes, low, high).astype(d.dtype)
        d.inputs.append(array)
        operands.append(d.writer.input(shape, d.dtype, float(scale), int(point)))
    result = d.writer.tensor(shape, d.dtype, float(scales[2]), int(points[2]))
    d.writer.operator(name, operands, result, "DivOptions", FusedActivationFunction=int(d.flag()))


def _fake_quant(d: Draw, name: str) -> None:
    """Of ranges with 0 in them and beside them; some numbers lie outside, some half way between steps."""
    shape = d.shape()
    low, high = np.sort(d.rng.uniform(-3, 3, 2))
    bits = d.number(2, 16)
    step = (high - low) / ((1 << bits) - 1)
    x = np.where(
        d.rng.random(shape) < 0.5, d.rng.uniform(-4, 4, shape), d.rng.integers(-9, 9, shape) * step / 2
    )
    operands = [d.given(x.astype(np.float32))]
    fields = {"Min": float(low), "Max": float(high), "NumBits": bits}
    d.writer.operator(name, operands, d.result(shape), "FakeQuantOptions", **fields)


def _non_max_suppression(d: Draw, name: str) -> None:
    """Boxes on a coarse grid, some without an area; many scores are equal."""
    soft, count = name.endswith("V5"), d.number(1, 24)
    boxes, scores = np.round(d.rng.random((count, 4)) * 4, d.number(0, 2)), np.round(d.rng.random(count), 1)
    limit = d.number(1, count + 3)
    thresholds = d.rng.choice([0.0, 0.3, 0.5, 1.0]), d.rng.choice([-1.0, 0.0, 0.3])
    numbers = [*thresholds, *([d.rng.choice([0.0, 0.4])] if soft else [])]
    operands = [d.given(boxes.astype(np.float32)), d.given(scores.astype(np.float32))]
    operands.append(d.constant(np.array(limit, np.int32)))
    operands += [d.either(np.array(number, np.float32)) for number in numbers]
    results = [d.result((limit,), "i4"), *([d.result((limit,))] if soft else []), d.result((), "i4")]
    d.writer.operator(name, operands, results, _options(name))


def _one_hot_scaled(d: Draw, name: str) -> None:
    """Two numbers and a result of three scales: bytes are copied."""
    indices = d.rng.integers(-1, 4, d.shape(1, 2)).astype(np.int32)
    operands = [d.given(indices), d.constant(np.array(3, np.int32))]
    for value in (d.values(()), d.values(())):
        scale, point = float(d.rng.uniform(0.01, 0.1)), d.number(0, 100)
        operands.append(d.writer.tensor((), d.dtype, scale, point, data=value))
    result = d.writer.tensor((*indices.shape, 3), d.dtype, 0.2, 7)
    d.writer.operator(name, operands, result, "OneHotOptions", Axis=-1)


def _quantize(d: Draw, name: str) -> None:
    """Of another type and scale."""
    to = "i1" if d.dtype == "i2" else str(d.rng.choice([kind for kind in _SCALES if kind != d.dtype]))
    x, (before, after) = d.values(d.shape()), d.rng.uniform(0.5, 2, 2)
    scale, zero_point = _SCALES[d.dtype]
    d.inputs.append(x)
    operand = d.writer.input(x.shape, d.dtype, scale * before, zero_point)
    scale, zero_point = _SCALES[to]
    d.writer.operator(name, [operand], d.writer.tensor(x.shape, to, scale * after, zero_point))


_SCALES = {"i1": (SCALE, 3), "u1": (SCALE, 131), "i2": (SCALE / 256, 0)}

_MOVED = "i4 i8 ?"
# The element types, and what draws the operator; `compare_types` draws all operators of all types.
OPERATORS: Mapping[str, tuple[str, Drawer]] = {
    **drawn_models.OPERATORS,
    "BATCH_TO_SPACE_ND": (_MOVED, _batch_to_space),
    "BROADCAST_TO": (_MOVED, _broadcast_to),
    "BUCKETIZE": ("i8", _bucketize),
    "CONCATENATION": ("i8 ?", _concatenation),
    "DEPTH_TO_SPACE": ("i4 i8", _space_to_depth),
    "DILATE": ("i1 i2 i4 ?", _dilate),
    "DIV quantized": ("i1 u1 i2", _division),
    "EXPAND_DIMS": (_MOVED, _expand_dims),
    "FAKE_QUANT": ("f4", _fake_quant),
    "FILL": (_MOVED, _fill),
    "GATHER first": ("u1 f2", _gather_first),
    "MEAN": ("i4 i8", _reduction),
    "MIRROR_PAD": ("i4 i8", _mirror_pad),
    "NON_MAX_SUPPRESSION_V4": ("f4", _non_max_suppression),
    "NON_MAX_SUPPRESSION_V5": ("f4", _non_max_suppression),
    "ONE_HOT scaled": ("i1 u1", _one_hot_scaled),
    "PACK": ("i8", _pack),
    "PAD": (_MOVED, _pad),
    "PADV2": (f"i1 {_MOVED}", _pad),
    "QUANTIZE": ("i1 u1 i2", _quantize),
    "REDUCE_MAX": (f"u1 {_MOVED}", _reduction),
    "REDUCE_MIN": (f"u1 {_MOVED}", _reduction),
    "REDUCE_PROD": ("i1 i2 i8 ?", _reduction),
    "RESHAPE": ("i8 ?", _reshape),
    "RESIZE_BILINEAR": ("i2", _resize),
    "RESIZE_NEAREST_NEIGHBOR": ("i4", _resize),
    "REVERSE_V2": (_MOVED, _reverse),
    "SLICE": (_MOVED, _slice),
    "SPACE_TO_BATCH_ND": (_MOVED, _space_to_batch),
    "SPACE_TO_DEPTH": ("i4 i8", _space_to_depth),
    "SPARSE_TO_DENSE": ("i1 i4 i8", _sparse_to_dense),
    "SPLIT": ("i1 i4 i8", _split),
    "STRIDED_SLICE": ("i8 ?", _strided_slice),
    "SUM": (_MOVED, _reduction),
    "TILE": (f"i2 {_MOVED}", _tile),
    "TRANSPOSE": (_MOVED, _transpose),
    "UNPACK": ("i1 i4 ?", _unpack),
    **dict.fromkeys(("COS", "FLOOR", "LOGISTIC", "ROUND", "SIN", "TANH"), ("f2", _unary)),
    "SQRT": ("i2", _unary),
    # Operators that `drawn_models` leaves to files, for `compare_types`.
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), ("", _pool)),
    **dict.fromkeys(("CEIL", "ELU", "EXP", "GELU", "HARD_SWISH", "L2_NORMALIZATION"), ("", _unary)),
    **dict.fromkeys(("LEAKY_RELU", "LOG", "LOG_SOFTMAX", "RELU", "RELU6"), ("", _unary)),
    **dict.fromkeys(("RELU_N1_TO_1", "RSQRT", "SOFTMAX", "SQUARE"), ("", _unary)),
    "SHAPE": ("", _shape),
}


def draw_model(name: str, dtype: str, seed: int) -> tuple[bytes, list[Array]]:
    """A model of the operator, and the inputs of a call."""
    return drawn_models.draw_model(name, dtype, seed, OPERATORS)
