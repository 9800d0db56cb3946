"""Models at scales for which float32 steps on the way to a multiplier would change results.

A `Case` holds scales and the values at which they decide; `add_to` makes an operator of them in a model file.
`python -m tests.tools.make_deciding` searches for cases and records what the pinned oracle gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tflite
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from tests.tflite_writer import Writer

Array = NDArray[np.generic]
Random = np.random.Generator
GOLDEN = Path(__file__).with_name("deciding.json")


class Case(Struct, frozen=True):
    """An operator with the numbers that decide.

    Attributes:
        kind: a key of `KINDS`.
        scales, zero_points: of the first and second operand and the result, or as the kind says.
        first: values of the first operand.
        second: those that each of them meets; one that is not read if there is one operand.
        alpha: slope or beta.
        expected: what the oracle gives, flat.
    """

    kind: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    first: tuple[int, ...]
    second: tuple[int, ...] = (0,)
    alpha: float = 0.0
    expected: tuple[int, ...] = ()


Builder = Callable[[Writer, Case, str], list[Array]]


class Kind(Struct, frozen=True):
    """How an operator is tried.

    Attributes:
        build: adds the operator to a model; returns its inputs.
        dtype: of operands and result.
        second: type of the second operand; empty if there is none.
        scales: draws scales that make good use of the result's range.
    """

    build: Builder
    dtype: str
    second: str
    scales: Callable[[Random, str], tuple[float, ...]]


def single(*values: float) -> tuple[float, ...]:
    """Scales as files hold them."""
    return tuple(float(np.float32(value)) for value in values)


def largest(dtype: str) -> int:
    return int(np.iinfo(dtype).max)


def _product_scales(rng: Random, _dtype: str) -> tuple[float, ...]:
    first, second = 10.0 ** rng.uniform(-3, -1, 2)
    return single(first, second, first * second * largest("i1") * rng.uniform(0.5, 2))


def _sum_scales(rng: Random, _dtype: str) -> tuple[float, ...]:
    scale = 10.0 ** rng.uniform(-3, -1)
    return single(scale, scale * rng.uniform(0.2, 3), scale * rng.uniform(0.7, 3))


def _square_scales(rng: Random, dtype: str) -> tuple[float, ...]:
    first, second, _ = _sum_scales(rng, dtype)
    return single(first, second, max(first, second) ** 2 * largest(dtype) * rng.uniform(0.5, 3))


def _grouped_by_tile(rng: Random, _dtype: str) -> tuple[float, ...]:
    scale = 10.0 ** rng.uniform(-3, -1)
    return single(scale, scale * rng.uniform(0.4, 1.7))


def _svdf_scales(rng: Random, _dtype: str) -> tuple[float, ...]:
    x, feature = 10.0 ** rng.uniform(-2.5, -1, 2)
    time = 10.0 ** rng.uniform(-4, -3)
    state = x * feature * 255 * 127 / 30000 * rng.uniform(1, 3)
    return single(x, feature, time, state, state * time * 32767 * 15000 / 127)


def _rsqrt_scales(rng: Random, dtype: str) -> tuple[float, ...]:
    scale = 10.0 ** rng.uniform(-3, -1)
    return single(scale, 1 / np.sqrt(scale) / largest(dtype) * rng.uniform(0.5, 2))


def _fixed(*out: float) -> Callable[[Random, str], tuple[float, ...]]:
    """A free input scale; the result's is given."""
    return lambda rng, dtype: single(10.0 ** rng.uniform(-2.5, -0.7) * 128 / (largest(dtype) + 1), *out)


def _outer(case: Case) -> tuple[Array, Array]:
    first, second = np.array(case.first), np.array(case.second)
    return tuple(np.ascontiguousarray(a) for a in np.broadcast_arrays(first[:, None], second))  # type: ignore[return-value]


def _weights(per_channel: bool, case: Case) -> list[float] | float:
    return [case.scales[1]] * len(case.second) if per_channel else case.scales[1]


def fully_connected(per_channel: bool) -> Builder:
    def build(w: Writer, case: Case, dtype: str) -> list[Array]:
        x = np.array(case.first, dtype)[:, None]
        a = w.input(x.shape, dtype, case.scales[0], case.zero_points[0])
        shape = (len(case.second), 1)
        weights = w.tensor(shape, "i1", _weights(per_channel, case), data=np.array(case.second))
        y = w.tensor((len(x), shape[0]), dtype, case.scales[2], case.zero_points[2])
        w.operator("FULLY_CONNECTED", [a, weights, -1], y, "FullyConnectedOptions")
        return [x]

    return build


def convolution(name: str, per_channel: bool) -> Builder:
    def build(w: Writer, case: Case, dtype: str) -> list[Array]:
        n, m = len(case.first), len(case.second)
        depthwise = name == "DEPTHWISE_CONV_2D"
        x = (_outer(case)[0] if depthwise else np.array(case.first)[:, None]).astype(dtype)[None, None]
        a = w.input(x.shape, dtype, case.scales[0], case.zero_points[0])
        shape = (1, 1, 1, m) if depthwise else (m, 1, 1, 1)
        scales = _weights(per_channel, case)
        weights = w.tensor(shape, "i1", scales, data=np.array(case.second), axis=3 if depthwise else 0)
        bias_type = "i8" if dtype == "i2" else "i4"
        bias = w.tensor((m,), bias_type, scales, data=np.zeros(m))
        y = w.tensor((1, 1, n, m), dtype, case.scales[2], case.zero_points[2])
        fields: dict[str, Any] = {"Padding": tflite.Padding.VALID, "StrideH": 1, "StrideW": 1}
        if name == "TRANSPOSE_CONV":
            extents = w.tensor((4,), "i4", data=np.array((1, 1, n, m)))
            w.operator(name, [extents, weights, a, bias], y, "TransposeConvOptions", **fields)
        elif depthwise:
            fields["DepthMultiplier"] = 1
            w.operator(name, [a, weights, bias], y, "DepthwiseConv2DOptions", **fields)
        else:
            w.operator(name, [a, weights, bias], y, "Conv2DOptions", **fields)
        return [x]

    return build


def batch_matmul(w: Writer, case: Case, dtype: str) -> list[Array]:
    x, z = np.array(case.first, dtype)[None, :, None], np.array(case.second, dtype)[None, None]
    a, b = (w.input(v.shape, dtype, case.scales[i], case.zero_points[i]) for i, v in enumerate((x, z)))
    y = w.tensor((1, x.shape[1], z.shape[2]), dtype, case.scales[2], case.zero_points[2])
    w.operator("BATCH_MATMUL", [a, b], y, "BatchMatMulOptions")
    return [x, z]


def elementwise(name: str, options: str = "") -> Builder:
    """Two operands that broadcast."""

    def build(w: Writer, case: Case, dtype: str) -> list[Array]:
        arrays = [array.astype(dtype) for array in _outer(case)]
        operands = [
            w.input(v.shape, dtype, case.scales[i], case.zero_points[i]) for i, v in enumerate(arrays)
        ]
        shape = arrays[0].shape
        y = w.tensor(shape, dtype, case.scales[2], case.zero_points[2])
        w.operator(name, operands, y, options)
        return arrays

    return build


def prelu(w: Writer, case: Case, dtype: str) -> list[Array]:
    x = _outer(case)[0].astype(dtype)
    a = w.input(x.shape, dtype, case.scales[0], case.zero_points[0])
    data = np.array(case.second)[None]
    slopes = w.tensor(data.shape, dtype, case.scales[1], case.zero_points[1], data=data)
    y = w.tensor(x.shape, dtype, case.scales[2], case.zero_points[2])
    w.operator("PRELU", [a, slopes], y)
    return [x]


def unary(name: str, options: str = "", field: str = "", result: str = "") -> Builder:
    def build(w: Writer, case: Case, dtype: str) -> list[Array]:
        x = np.array(case.first, dtype)[None]
        a = w.input(x.shape, dtype, case.scales[0], case.zero_points[0])
        y = w.tensor(x.shape, result or dtype, case.scales[1], case.zero_points[2])
        w.operator(name, [a], y, options, **({field: case.alpha} if field else {}))
        return [x]

    return build


def pairs(name: str, options: str, axis: bool = False, field: str = "") -> Builder:
    """Operators along an axis of two elements."""

    def build(w: Writer, case: Case, dtype: str) -> list[Array]:
        x = np.stack(_outer(case), axis=-1).astype(dtype)
        a = w.input(x.shape, dtype, case.scales[0], case.zero_points[0])
        operands = [a, w.tensor((1,), "i4", data=np.array([2]))] if axis else [a]
        shape = x.shape[:2] if axis else x.shape
        y = w.tensor(shape, dtype, case.scales[-1], case.zero_points[2])
        w.operator(name, operands, y, options, **({field: case.alpha} if field else {}))
        return [x]

    return build


def svdf(w: Writer, case: Case, _dtype: str) -> list[Array]:
    """One step of time; its weight follows from the feature's."""
    n, m = len(case.first), len(case.second)
    scale = case.scales
    x = np.array(case.first, "i1")[:, None]
    a = w.input(x.shape, "i1", scale[0], case.zero_points[0])
    second = np.array(case.second)[:, None]
    feature = w.tensor((m, 1), "i1", scale[1], data=second)
    time = w.tensor((m, 1), "i2", scale[2], data=129 * second + 77)
    bias = w.tensor((m,), "i4", np.float32(scale[2]) * np.float32(scale[3]), data=np.zeros(m))
    state = w.tensor((n, m), "i2", scale[3], variable=True)
    y = w.tensor((n, m), "i1", scale[4], case.zero_points[2])
    activation = tflite.ActivationFunctionType.RELU
    fields = {"Rank": 1, "FusedActivationFunction": activation}
    w.operator("SVDF", [a, feature, time, bias, state], y, "SVDFOptions", **fields)
    return [x]


def _table(**kinds: tuple[Builder, str, str, Callable[[Random, str], tuple[float, ...]]]) -> dict[str, Kind]:
    return {name.replace("__", " "): Kind(*values) for name, values in kinds.items()}


_UNIT8, _UNIT16 = 1 / 256, 1 / 32768
KINDS = _table(
    FULLY_CONNECTED__int8=(fully_connected(False), "i1", "i1", _product_scales),
    FULLY_CONNECTED__int8__per__channel=(fully_connected(True), "i1", "i1", _product_scales),
    FULLY_CONNECTED__int16=(fully_connected(False), "i2", "i1", _product_scales),
    CONV_2D__int8=(convolution("CONV_2D", False), "i1", "i1", _product_scales),
    CONV_2D__int8__per__channel=(convolution("CONV_2D", True), "i1", "i1", _product_scales),
    CONV_2D__int16=(convolution("CONV_2D", True), "i2", "i1", _product_scales),
    DEPTHWISE_CONV_2D__int8=(convolution("DEPTHWISE_CONV_2D", True), "i1", "i1", _product_scales),
    DEPTHWISE_CONV_2D__int16=(convolution("DEPTHWISE_CONV_2D", True), "i2", "i1", _product_scales),
    TRANSPOSE_CONV__int8=(convolution("TRANSPOSE_CONV", True), "i1", "i1", _product_scales),
    TRANSPOSE_CONV__int16=(convolution("TRANSPOSE_CONV", True), "i2", "i1", _product_scales),
    BATCH_MATMUL__int8=(batch_matmul, "i1", "i1", _product_scales),
    BATCH_MATMUL__int16=(batch_matmul, "i2", "i2", _product_scales),
    SVDF__int8=(svdf, "i1", "i1", _svdf_scales),
    MUL__int8=(elementwise("MUL", "MulOptions"), "i1", "i1", _product_scales),
    MUL__int16=(elementwise("MUL", "MulOptions"), "i2", "i2", _product_scales),
    ADD__int8=(elementwise("ADD", "AddOptions"), "i1", "i1", _sum_scales),
    ADD__int16=(elementwise("ADD", "AddOptions"), "i2", "i2", _sum_scales),
    SUB__int8=(elementwise("SUB", "SubOptions"), "i1", "i1", _sum_scales),
    SUB__int16=(elementwise("SUB", "SubOptions"), "i2", "i2", _sum_scales),
    SQUARED_DIFFERENCE__int8=(elementwise("SQUARED_DIFFERENCE"), "i1", "i1", _square_scales),
    PRELU__int8=(prelu, "i1", "i1", _product_scales),
    ABS__int8=(unary("ABS"), "i1", "", _grouped_by_tile),
    ABS__int16=(unary("ABS"), "i2", "", _grouped_by_tile),
    RELU__int8=(unary("RELU"), "i1", "", _grouped_by_tile),
    RELU6__int8=(unary("RELU6"), "i1", "", _grouped_by_tile),
    LEAKY_RELU__int8=(unary("LEAKY_RELU", "LeakyReluOptions", "Alpha"), "i1", "", _grouped_by_tile),
    LEAKY_RELU__int16=(unary("LEAKY_RELU", "LeakyReluOptions", "Alpha"), "i2", "", _grouped_by_tile),
    HARD_SWISH__int8=(unary("HARD_SWISH"), "i1", "", _grouped_by_tile),
    QUANTIZE__int8=(unary("QUANTIZE"), "i1", "", _grouped_by_tile),
    QUANTIZE__int16=(unary("QUANTIZE"), "i2", "", _grouped_by_tile),
    QUANTIZE__int16__to__int8=(
        unary("QUANTIZE", result="i1"),
        "i2",
        "",
        lambda rng, dtype: single(*(np.array(_grouped_by_tile(rng, dtype)) * (1, 256))),
    ),
    QUANTIZE__int8__to__int16=(
        unary("QUANTIZE", result="i2"),
        "i1",
        "",
        lambda rng, dtype: single(*(np.array(_grouped_by_tile(rng, dtype)) * (1, 1 / 200))),
    ),
    RSQRT__int16=(unary("RSQRT"), "i2", "", _rsqrt_scales),
    MEAN__int8=(pairs("MEAN", "ReducerOptions", axis=True), "i1", "i1", _grouped_by_tile),
    MEAN__int16=(pairs("MEAN", "ReducerOptions", axis=True), "i2", "i2", _grouped_by_tile),
    SUM__int8=(pairs("SUM", "ReducerOptions", axis=True), "i1", "i1", _grouped_by_tile),
    SOFTMAX__int16=(pairs("SOFTMAX", "SoftmaxOptions", field="Beta"), "i2", "i2", _fixed(_UNIT16)),
)

# Results whose zero point the reference fixes; int16 has none.
FIXED_ZERO_POINTS = {"SOFTMAX": -128, "RSQRT": -128}


def decides(kind: str) -> str:
    """The oracle whose way is the reference's."""
    return "litert" if kind.startswith("RELU6") else "tflm"


def model(cases: Sequence[Case]) -> tuple[bytes, list[Array]]:
    """One model with an operator for each case, and its inputs."""
    writer, inputs = Writer(), []
    for case in cases:
        kind = KINDS[case.kind]
        inputs += kind.build(writer, case, kind.dtype)
    return writer.pack(), inputs


def load() -> list[Case]:
    """The recorded cases."""
    return [
        Case(**{key: tuple(v) if isinstance(v, list) else v for key, v in record.items()})
        for record in json.loads(GOLDEN.read_text(encoding="utf-8"))
    ]


def save(cases: Sequence[Case]) -> None:
    lines = ",\n".join(json.dumps(asdict(case)) for case in cases)
    GOLDEN.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
