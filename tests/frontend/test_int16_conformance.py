"""The layers of TFLM's int16 conformance cases: TFLM's results bit for bit, within its gate of the real ones.

The cases are layers of a speech enhancer (SEANet) of int16 activations and int8 weights:
https://github.com/tensorflow/tflite-micro/tree/main/tensorflow/lite/micro/integration_tests/seanet.
Shapes, strides and scales are theirs; numbers are drawn. TFLM's tests accept results that are one step away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tflite

from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.kernels.portable import check, check_on_cores
from tests.kernels.random_networks import merge
from tests.needs import need_modules
from tests.tflite_writer import Array, Writer

GATE = 1  # steps
Model = tuple[bytes, list[Array], Callable[..., Array]]  # the real function of real inputs


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], spread: int = 30000) -> Array:
    return rng.integers(-spread, spread + 1, shape).astype(np.int16)


# Output images, and the scales of both inputs and the output.
ADD = {
    (1, 1, 5, 64): (0.00065708649, 0.00096937158, 0.00102444214),
    (1, 1, 40, 32): (0.01720116287, 0.01459718402, 0.02002248541),
    (1, 4, 162, 8): (0.00748511870, 0.00862544402, 0.00974031724),
    (1, 2, 160, 2): (0.00092197146, 0.00117197586, 0.00069779332),
}
SUB = {
    (1, 2, 12, 64): (0.00095838844, 0.00001532, 0.00059414940),
    (1, 2, 82, 16): (0.01517603733, 0.00024126, 0.01061697956),
}


def _binary(name: str, shape: tuple[int, ...], scales: tuple[float, ...], rng: np.random.Generator) -> Model:
    """SUB takes a constant for each channel off."""
    w = Writer()
    first, second = _numbers(rng, shape), _numbers(rng, shape if name == "ADD" else shape[-1:])
    x = w.input(shape, "i2", scales[0])
    if name == "ADD":
        y = w.input(shape, "i2", scales[1])
    else:
        y = w.tensor(second.shape, "i2", scales[1], data=second)
    w.operator(name, [x, y], w.tensor(shape, "i2", scales[2]), f"{name.capitalize()}Options")
    if name == "ADD":
        return w.pack(), [first, second], lambda a, b: a + b
    return w.pack(), [first], lambda a: a - second * np.float32(scales[1])


# Input image, filters, strides; scales of input and output.
CONV = [
    ((1, 8, 166, 2), (8, 7, 7, 2), (1, 1), (0.00092197146, 0.00174882344)),
    ((1, 3, 12, 64), (64, 3, 4, 64), (1, 2), (0.00096937158, 0.00080692960)),
    ((1, 4, 82, 16), (32, 4, 4, 16), (2, 2), (0.01361839380, 0.01459718402)),
    ((1, 1, 10, 64), (32, 1, 1, 64), (1, 1), (0.00125791726, 0.00137916952)),
]
TRANSPOSE_CONV = [
    ((1, 1, 5, 64), (64, 3, 4, 64), (1, 2), (0.00102444214, 0.00095838844)),
    ((1, 1, 40, 32), (16, 4, 4, 32), (2, 2), (0.01284443028, 0.01517603733)),
]


def _convolution(
    shape: tuple[int, ...],
    filters: tuple[int, ...],
    strides: tuple[int, int],
    scales: tuple[float, float],
    transposed: bool,
    rng: np.random.Generator,
) -> Model:
    w = Writer()
    weights = rng.integers(-127, 128, filters).astype(np.int8)
    weight_scales = (
        rng.uniform(0.5, 1, filters[0]) * 4 * scales[1] / scales[0] / np.prod(filters[1:]) ** 0.5 / 127
    )
    weight_scales = weight_scales.astype(np.float32)
    bias = rng.integers(-(1 << 20), 1 << 20, filters[0])
    x = w.input(shape, "i2", scales[0])
    kernel = w.tensor(filters, "i1", weight_scales, data=weights)
    biases = w.tensor(filters[:1], "i8", (weight_scales * np.float32(scales[0])), data=bias)
    real = weights * weight_scales[:, None, None, None].astype(np.float64)
    real_bias = bias * weight_scales.astype(np.float64) * np.float32(scales[0])
    fields: dict[str, Any] = {"Padding": tflite.Padding.VALID, "StrideH": strides[0], "StrideW": strides[1]}
    kernel_size, image = filters[1:3], shape[1:3]
    if transposed:
        size = tuple((n - 1) * s + k for n, s, k in zip(image, strides, kernel_size, strict=True))
        result = (1, *size, filters[0])
        target = w.tensor((4,), "i4", data=np.array(result))
        w.operator(
            "TRANSPOSE_CONV",
            [target, kernel, x, biases],
            w.tensor(result, "i2", scales[1]),
            "TransposeConvOptions",
            **fields,
        )
    else:
        size = tuple((n - k) // s + 1 for n, s, k in zip(image, strides, kernel_size, strict=True))
        result = (1, *size, filters[0])
        fields |= {"DilationHFactor": 1, "DilationWFactor": 1}
        w.operator(
            "CONV_2D", [x, kernel, biases], w.tensor(result, "i2", scales[1]), "Conv2DOptions", **fields
        )

    def function(image: Array) -> Array:
        out = np.zeros(result) + real_bias
        rows, columns = size if not transposed else shape[1:3]
        for ky, kx in np.ndindex(*kernel_size):
            window = (
                slice(None),
                slice(ky, ky + (rows - 1) * strides[0] + 1, strides[0]),
                slice(kx, kx + (columns - 1) * strides[1] + 1, strides[1]),
            )
            if transposed:
                out[window] += image.astype(np.float64) @ real[:, ky, kx].T
            else:
                out += image.astype(np.float64)[window] @ real[:, ky, kx].T
        return out

    return w.pack(), [_numbers(rng, shape, 8000)], function


# Images and scales of input and output; the slope is 0.3.
LEAKY_RELU = {
    (1, 2, 160, 8): (0.00174882344, 0.00174882344),
    (1, 2, 80, 16): (0.01988160983, 0.01284443028),
    (1, 1, 5, 32): (0.00050811685, 0.00045647880),
}
# Columns in front and behind.
PAD = {(1, 2, 160, 2): 3, (1, 1, 5, 64): 1}
# Images, where the part begins, and its shape.
STRIDED_SLICE = [
    ((1, 8, 166, 2), (0, 2, 0, 0), (1, 6, 166, 2)),
    ((1, 3, 12, 64), (0, 0, 0, 0), (1, 1, 12, 64)),
    ((1, 1, 42, 32), (0, 0, 1, 0), (1, 1, 40, 32)),
]


def _leaky_relu(shape: tuple[int, ...], scales: tuple[float, float], rng: np.random.Generator) -> Model:
    w = Writer()
    x, y = w.input(shape, "i2", scales[0]), w.tensor(shape, "i2", scales[1])
    w.operator("LEAKY_RELU", [x], y, "LeakyReluOptions", Alpha=0.3)
    return w.pack(), [_numbers(rng, shape)], lambda a: np.where(a < 0, a * np.float32(0.3), a)


def _pad(shape: tuple[int, ...], columns: int, rng: np.random.Generator) -> Model:
    w = Writer()
    pairs = np.array([[0, 0], [0, 0], [columns, columns], [0, 0]])
    result = (*shape[:2], shape[2] + 2 * columns, shape[3])
    operands = [w.input(shape, "i2", 0.002), w.tensor((4, 2), "i4", data=pairs)]
    w.operator("PAD", operands, w.tensor(result, "i2", 0.002), "PadOptions")
    return w.pack(), [_numbers(rng, shape)], lambda a: np.pad(a, pairs.tolist())


def _strided_slice(
    shape: tuple[int, ...], begin: tuple[int, ...], size: tuple[int, ...], rng: np.random.Generator
) -> Model:
    w = Writer()
    end = np.add(begin, size)
    limits = [w.tensor((4,), "i4", data=np.array(n)) for n in (begin, end, (1, 1, 1, 1))]
    x, y = w.input(shape, "i2", 0.002), w.tensor(size, "i2", 0.002)
    w.operator("STRIDED_SLICE", [x, *limits], y, "StridedSliceOptions")
    part = tuple(map(slice, begin, end.tolist()))
    return w.pack(), [_numbers(rng, shape)], lambda a: a[part]


def _quantize(before: tuple[str, float], after: tuple[str, float], rng: np.random.Generator) -> Model:
    """Between 32 and 16 bits, as at the ends of the network."""
    w, shape = Writer(), (1, 2, 160, 2)
    x, y = w.input(shape, *before), w.tensor(shape, *after)
    w.operator("QUANTIZE", [x], y, "QuantizeOptions")
    spread = int(30000 * 0.0009219715 / before[1]) if before[0] == "i4" else 30000
    numbers = rng.integers(-spread, spread, shape).astype(before[0])
    return w.pack(), [numbers], lambda a: a


WIDE, NARROW = ("i4", 1.4901161e-07), ("i2", 0.0009219715)


def cases() -> Iterator[tuple[str, Model]]:
    rng = np.random.default_rng(1)
    for name, table in (("ADD", ADD), ("SUB", SUB)):
        yield from ((name, _binary(name, shape, scales, rng)) for shape, scales in table.items())
    yield from (("CONV_2D", _convolution(*case, False, rng)) for case in CONV)
    yield from (("TRANSPOSE_CONV", _convolution(*case, True, rng)) for case in TRANSPOSE_CONV)
    yield from (("LEAKY_RELU", _leaky_relu(*case, rng)) for case in LEAKY_RELU.items())
    yield from (("PAD", _pad(*case, rng)) for case in PAD.items())
    yield from (("STRIDED_SLICE", _strided_slice(*case, rng)) for case in STRIDED_SLICE)
    yield from (("QUANTIZE", _quantize(*ends, rng)) for ends in ((WIDE, NARROW), (NARROW, WIDE)))


CASES = [pytest.param(*model, id=f"{name.lower()}_{index}") for index, (name, model) in enumerate(cases())]


@pytest.mark.parametrize(("data", "inputs", "function"), CASES)
def test_as_tflm_and_within_its_gate(
    data: bytes, inputs: list[Array], function: Callable[..., Array]
) -> None:
    need_modules("tflite_micro")
    graph = import_model(data)
    (ours,) = Interpreter(graph).run(*inputs)
    (index,) = oracle.operator_outputs(data)
    np.testing.assert_array_equal(ours, oracle.tflm(data, [inputs], [index])[0][index])
    real = [x * v.type.quant.scale for x, v in zip(inputs, graph.inputs, strict=True) if v.type.quant]
    out = graph.outputs[0].type
    assert out.quant is not None
    steps = np.clip(function(*real) / out.quant.scale, *out.dtype.range)
    assert np.abs(steps - ours).max() <= GATE


def _all() -> list[bytes]:
    return [model[0] for _, model in cases()]


@pytest.mark.slow
def test_their_code() -> None:
    check(merge([import_model(data) for data in _all()]), runs=2)


@pytest.mark.exhaustive
def test_their_code_on_cores() -> None:
    check_on_cores(merge([import_model(data) for data in _all()]), runs=2)
