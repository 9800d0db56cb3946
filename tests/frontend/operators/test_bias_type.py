"""Product sums of int16 activations: the type of the bias says how they are summed up and scaled."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import tflite

from microfold.frontend.tflite import trace_model
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from tests import oracle
from tests.kernels.portable import check_all
from tests.needs import need_modules
from tests.tflite_writer import Array, Writer

CHANNELS, DEPTH = 4, 96
INPUT = 0.001
# Input, filter and result; the axis of the filter's channels; options.
WINDOW = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, str, Mapping[str, int]]
OPERATORS: dict[str, Shapes] = {
    "CONV_2D": ((1, 4, 5, DEPTH), (CHANNELS, 3, 3, DEPTH), (1, 4, 5, CHANNELS), 0, "Conv2DOptions", WINDOW),
    "CONV_2D in groups": (
        *((1, 4, 5, 2 * DEPTH), (CHANNELS, 3, 3, DEPTH), (1, 4, 5, CHANNELS), 0),
        *("Conv2DOptions", WINDOW),
    ),
    "CONV_2D by channel": (
        *((1, 4, 5, CHANNELS), (CHANNELS, 3, 3, 1), (1, 4, 5, CHANNELS), 0),
        *("Conv2DOptions", WINDOW),
    ),
    "FULLY_CONNECTED": (
        *((6, 9 * DEPTH), (CHANNELS, 9 * DEPTH), (6, CHANNELS), 0),
        *("FullyConnectedOptions", {}),
    ),
    "TRANSPOSE_CONV": (
        *((1, 3, 3, 9 * DEPTH), (CHANNELS, 3, 3, 9 * DEPTH), (1, 5, 5, CHANNELS), 0),
        *("TransposeConvOptions", {"StrideH": 2, "StrideW": 2}),
    ),
    "DEPTHWISE_CONV_2D": (
        *((1, 4, 5, CHANNELS), (1, 3, 3, CHANNELS), (1, 4, 5, CHANNELS), 3),
        *("DepthwiseConv2DOptions", WINDOW | {"DepthMultiplier": 1}),
    ),
}
INT32, INT64 = tflite.TensorType.INT32, tflite.TensorType.INT64


def write(
    operator: str, bias: str, bias_type: int | None, *, per_channel: bool = True
) -> tuple[bytes, list[list[Array]]]:
    """A model whose sums leave 32 bits in some elements, and inputs for two calls.

    Args:
        bias: the numpy type; empty: there is none.
        bias_type: in the options.
    """
    rng = np.random.default_rng(3)
    image, filters, result, axis, options, fields = OPERATORS[operator]
    weights = rng.integers(-127, 128, filters)
    np.moveaxis(weights, axis, 0)[0] = 127
    scales = rng.uniform(0.002, 0.004, CHANNELS if per_channel else 1).astype(np.float32)
    sums = 1 << (26 if image[-1] == CHANNELS else 32)
    w = Writer()
    x = w.input(image, "i2", INPUT)
    operands = [x, w.tensor(filters, "i1", scales.tolist(), data=weights, axis=axis)]
    if bias:
        array = rng.integers(-(1 << 24), 1 << 24, CHANNELS)
        quant = (INPUT * np.broadcast_to(scales, CHANNELS)).tolist() if per_channel else INPUT * scales[0]
        operands.append(w.tensor((CHANNELS,), bias, quant, data=array))
    y = w.tensor(result, "i2", float(INPUT * scales.mean() * sums / 65536))
    if operator == "TRANSPOSE_CONV":
        shape = w.tensor((4,), "i4", data=np.array(result, np.int32))
        operands = [shape, operands[1], x, *operands[2:]]
    if bias_type is not None:
        fields = {**fields, "QuantizedBiasType": bias_type}
    w.operator(operator.split()[0], operands, y, options, **fields)
    drawn = rng.integers(-(1 << 15), 1 << 15, (2, *image)).astype(np.int16)
    drawn[1] = 32767
    return w.pack(), [[array] for array in drawn]


# Bias, type in the options, and who decides. TFLM takes every bias of TRANSPOSE_CONV for one of int64.
CASES = [
    *((name, "i4", INT32, "tflm") for name in OPERATORS if name.split()[0] in ("CONV_2D", "FULLY_CONNECTED")),
    *((name, "i4", None, "tflm") for name in ("CONV_2D", "FULLY_CONNECTED")),
    *((name, "i8", None, "tflm") for name in OPERATORS),
    *((name, "", INT32, "tflm") for name in ("CONV_2D", "FULLY_CONNECTED")),
    *((name, "", INT64, "tflm") for name in ("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")),
    *((name, "", None, "tflm") for name in OPERATORS),
    ("TRANSPOSE_CONV", "i4", INT32, "litert"),
    ("TRANSPOSE_CONV", "", INT32, "litert"),
]


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize(("operator", "bias", "bias_type", "decides"), CASES)
def test_equals_the_references(
    operator: str, bias: str, bias_type: int | None, decides: str, per_channel: bool
) -> None:
    need_modules("tflite_micro", "ai_edge_litert")
    data, calls = write(operator, bias, bias_type, per_channel=per_channel)
    traced = trace_model(data)
    (index,) = oracle.operator_outputs(data)
    expected = getattr(oracle, decides)(data, calls, [index])
    assert np.unique(expected[0][index]).size > 10
    assert not oracle.differences(traced, calls, expected)


def test_generated_code() -> None:
    """The operators with an int32 bias, DEPTHWISE_CONV_2D among them.

    LiteRT refuses that one, and TFLM reads an int64 bias; it is taken to mean what CONV_2D by channel does.
    """
    names = ("CONV_2D", "CONV_2D by channel", "FULLY_CONNECTED", "TRANSPOSE_CONV", "DEPTHWISE_CONV_2D")
    program = check_all({name: trace_model(write(name, "i4", None)[0]).graph for name in names})
    kernels = {layer.label: layer.kernel.op for layer in program.layers}
    assert kernels["CONV_2D by channel"] is kernels["DEPTHWISE_CONV_2D"] is DepthwiseConv2D
