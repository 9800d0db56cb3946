"""The legacy uint8 quantisation: LiteRT's results, by int8 where that is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tflite

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.verification import verify
from tests import oracle
from tests.kernels.portable import check, check_on_cores
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_modules
from tests.sampling import sampled
from tests.tflite_writer import Array, Writer

RELU6 = tflite.ActivationFunctionType.RELU6
DRAWS = 12


class Legacy(Writer):
    """Values of uint8 with random scales and zero points, and constants."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.scales: dict[int, float] = {}

    def element(self, low: float = 0.02, high: float = 0.2) -> tuple[float, int]:
        return float(self.rng.uniform(low, high)), int(self.rng.integers(0, 256))

    def value(self, *shape: int, element: tuple[float, int] | None = None) -> int:
        scale, zero_point = element or self.element()
        index = self.tensor(shape, "u1", scale, zero_point)
        self.scales[index] = scale
        return index

    def filtered(self, x: int, shape: tuple[int, ...], *result: int, **options: int) -> int:
        """A convolution with random weights of this shape, whose result is no output."""
        scale, zero_point = self.element()
        weights = self.tensor(shape, "u1", scale, zero_point, data=self.rng.integers(0, 256, shape))
        depthwise = "DepthMultiplier" in options
        count = shape[3] if depthwise else shape[0]
        product = np.float32(self.scales[x]) * np.float32(scale)
        bias = self.tensor((count,), "i4", float(product), data=self.rng.integers(-3000, 3000, count))
        y = self.value(*result)
        options = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1} | options
        name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
        kind = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
        self.operator(name, [x, weights, bias], y, kind, inner=True, **options)
        return y


def mobile(seed: int) -> bytes:
    """A network as of the first MobileNets: all of their layers, and what detectors have behind them."""
    w = Legacy(seed)
    x = w.value(1, 9, 9, 3)
    w.inputs.append(x)
    convolved = w.filtered(x, (8, 3, 3, 3), 1, 5, 5, 8, StrideH=2, StrideW=2, FusedActivationFunction=RELU6)
    depthwise = w.filtered(
        convolved, (1, 3, 3, 8), 1, 5, 5, 8, DepthMultiplier=1, FusedActivationFunction=RELU6
    )
    pointwise = w.filtered(depthwise, (8, 1, 1, 8), 1, 5, 5, 8)
    total = w.value(1, 5, 5, 8)
    w.operator("ADD", [convolved, pointwise], total, "AddOptions", inner=True)
    probabilities = w.value(1, 5, 5, 8, element=(1 / 256, 0))
    w.operator("LOGISTIC", [total], probabilities)
    averaged = w.tensor((1, 1, 1, 8), "u1", 1 / 256, 0)
    window = {"FilterHeight": 5, "FilterWidth": 5, "StrideH": 1, "StrideW": 1, "Padding": 1}
    w.operator("AVERAGE_POOL_2D", [probabilities], averaged, "Pool2DOptions", **window)
    row, softmax = w.tensor((1, 8), "u1", 1 / 256, 0), w.value(1, 8, element=(1 / 256, 0))
    shape = w.tensor((2,), "i4", data=np.array([1, 8]))
    w.operator("RESHAPE", [averaged, shape], row, "ReshapeOptions", inner=True)
    w.operator("SOFTMAX", [row], softmax, "SoftmaxOptions", Beta=1.0)
    return w.pack()


def images(seed: int) -> list[Array]:
    return [np.random.default_rng(seed).integers(0, 256, (1, 9, 9, 3), np.uint8)]


def test_a_network() -> None:
    need_modules("ai_edge_litert")
    for seed in range(DRAWS):
        data, given = mobile(seed), images(seed)
        ours = Interpreter(import_model(data)).run(*given)
        graph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
        outputs = [int(n) for n in graph.OutputsAsNumpy()]
        (theirs,) = oracle.litert(data, [given], outputs)
        for mine, index in zip(ours, outputs, strict=True):
            np.testing.assert_array_equal(mine, theirs[index])


def test_its_code() -> None:
    program = compile_graph(import_model(mobile(0)), target.load("host"))
    found = verify.verify(program, verify.input_sets([binding.type for binding in program.inputs], 5))
    assert found.exact, found.differences
    # Int8 all the way: only inputs and outputs are converted, and pools, which have a kernel of their own.
    kernels = [layer.kernel.name for layer in program.layers]
    assert {"s8_s16w_conv2d__c_2x2", "s8_s16w_depthwise_conv2d__c_plane", "u8_average_pool2d__c"} <= set(
        kernels
    )
    assert sum("requantize" in name for name in kernels) <= 4, kernels


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", sampled(["cortex-m0plus", "cortex-m4", "cortex-m55"]))
def test_its_code_on_cores(core: str) -> None:
    program = compile_graph(import_model(mobile(1)), target.load(core))
    found = verify.verify(program, verify.input_sets([binding.type for binding in program.inputs], 5))
    assert found.exact, found.differences


def operator(name: str, seed: int) -> tuple[bytes, list[Array]]:
    """A file of one operator on one or two values of the same shape."""
    w = Legacy(seed)
    operands = [w.input((2, 3, 4), "u1", *w.element()) for _ in range(2 if name in BINARY else 1)]
    if name in ALIKE:
        element = w.element()
        w = Legacy(seed)
        operands = [w.input((2, 3, 4), "u1", *element) for _ in range(2)]
    scale = RESULTS.get(name) or (element if name in ALIKE else w.element())
    truth = name in COMPARISONS
    result = w.tensor((2, 3, 4), "?") if truth else w.tensor((2, 3, 4), "u1", *scale)
    options = OPTIONS.get(name, ("", {}))
    w.operator(name, operands, result, options[0], **options[1])
    rng = np.random.default_rng(seed)
    return w.pack(), [rng.integers(0, 256, (2, 3, 4), np.uint8) for _ in operands]


COMPARISONS = ("EQUAL", "LESS", "GREATER_EQUAL")
ALIKE = ("MAXIMUM", "MINIMUM")
BINARY = ("ADD", "SUB", "MUL", *ALIKE, *COMPARISONS)
RESULTS = {
    "LOGISTIC": (1 / 256, 0),
    "TANH": (1 / 128, 128),
    "SOFTMAX": (1 / 256, 0),
    "LOG_SOFTMAX": (1 / 16, 255),
    "L2_NORMALIZATION": (1 / 128, 128),
}
OPTIONS: dict[str, tuple[str, dict[str, float]]] = {
    "SOFTMAX": ("SoftmaxOptions", {"Beta": 1.0}),
    "LEAKY_RELU": ("LeakyReluOptions", {"Alpha": 0.1}),
    "ADD": ("AddOptions", {"FusedActivationFunction": RELU6}),
    "SUB": ("SubOptions", {}),
    "MUL": ("MulOptions", {}),
    "L2_NORMALIZATION": ("L2NormOptions", {}),
}
UNARY = (
    "RELU",
    "RELU6",
    "LEAKY_RELU",
    "HARD_SWISH",
    "LOGISTIC",
    "TANH",
    "SOFTMAX",
    "LOG_SOFTMAX",
    "L2_NORMALIZATION",
)


@pytest.mark.parametrize("name", [*BINARY, *UNARY])
def test_operators(name: str) -> None:
    """A unit may lie between the two where LiteRT computes effective scales in float32."""
    need_modules("ai_edge_litert")
    differing = 0
    for seed in range(DRAWS):
        data, given = operator(name, seed)
        (ours,) = Interpreter(import_model(data)).run(*given)
        (index,) = oracle.operator_outputs(data)
        theirs = oracle.litert(data, [given], [index])[0][index]
        assert not oracle.difference(ours, theirs, units=1)
        differing += int((ours != theirs).sum())
    assert differing <= (8 if name in ("HARD_SWISH", "LEAKY_RELU", "MUL") else 0)


def dense(seed: int) -> tuple[bytes, list[Array]]:
    """FULLY_CONNECTED; of every third seed scales with which sums are ties."""
    w = Legacy(seed)
    depth, units = int(w.rng.integers(1, 40)), int(w.rng.integers(1, 9))
    (scale, zero_point), (weight_scale, weight_zero), (_, result_zero) = (w.element() for _ in range(3))
    result_scale = scale * weight_scale * depth * 200
    if seed % 3 == 0:
        scale, weight_scale, result_scale = 0.5, 0.25, 8.0
    x = w.input((3, depth), "u1", scale, zero_point)
    weights = w.tensor(
        (units, depth), "u1", weight_scale, weight_zero, data=w.rng.integers(0, 256, (units, depth))
    )
    bias = w.tensor((units,), "i4", scale * weight_scale, data=w.rng.integers(-3000, 3000, units))
    y = w.tensor((3, units), "u1", result_scale, result_zero)
    activation = int(w.rng.choice([0, RELU6]))
    w.operator(
        "FULLY_CONNECTED", [x, weights, bias], y, "FullyConnectedOptions", FusedActivationFunction=activation
    )
    return w.pack(), [w.rng.integers(0, 256, (3, depth), np.uint8)]


def transposed(seed: int) -> tuple[bytes, list[Array]]:
    """TRANSPOSE_CONV, also of overlapping windows."""
    w = Legacy(seed)
    size, filters, channels = (int(w.rng.integers(1, high)) for high in (4, 4, 6))
    stride = int(w.rng.integers(1, size + 1))
    side = 2 * stride + size
    (scale, zero_point), (weight_scale, weight_zero), _ = (w.element() for _ in range(3))
    shape = w.tensor((4,), "i4", data=np.array([1, side, side, filters]))
    data = w.rng.integers(0, 256, (filters, size, size, channels))
    weights = w.tensor(data.shape, "u1", weight_scale, weight_zero, data=data)
    x = w.input((1, 3, 3, channels), "u1", scale, zero_point)
    bias = w.tensor((filters,), "i4", scale * weight_scale, data=w.rng.integers(-3000, 3000, filters))
    y = w.value(1, side, side, filters, element=(w.element(0.5, 1.0)))
    fields: dict[str, Any] = {"Padding": tflite.Padding.VALID, "StrideH": stride, "StrideW": stride}
    w.operator("TRANSPOSE_CONV", [shape, weights, x, bias], y, "TransposeConvOptions", **fields)
    return w.pack(), [w.rng.integers(0, 256, (1, 3, 3, channels), np.uint8)]


def resized(seed: int) -> tuple[bytes, list[Array]]:
    """RESIZE_BILINEAR of images of two channels."""
    w = Legacy(seed)
    before, after = w.rng.integers(1, 9, 2), w.rng.integers(1, 9, 2)
    x = w.input((1, *before, 2), "u1", 0.1, 7)
    size = w.tensor((2,), "i4", data=after)
    fields: dict[str, Any] = {"AlignCorners": seed % 3 == 0, "HalfPixelCenters": seed % 3 == 1}
    y = w.tensor((1, *after, 2), "u1", 0.1, 7)
    w.operator("RESIZE_BILINEAR", [x, size], y, "ResizeBilinearOptions", **fields)
    return w.pack(), [w.rng.integers(0, 256, (1, *before, 2), np.uint8)]


DRAWN = {"dense": dense, "transposed": transposed, "resized": resized}


@pytest.mark.parametrize("name", DRAWN)
def test_operators_with_attributes(name: str) -> None:
    need_modules("ai_edge_litert")
    for seed in range(2 * DRAWS):
        data, given = DRAWN[name](seed)
        (ours,) = Interpreter(import_model(data)).run(*given)
        (index,) = oracle.operator_outputs(data)
        np.testing.assert_array_equal(ours, oracle.litert(data, [given], [index])[0][index], str(seed))


def _all_drawn() -> Graph:
    drawn = [draw(seed)[0] for draw in DRAWN.values() for seed in range(4)]
    return merge([import_model(data) for data in (*drawn, operator("L2_NORMALIZATION", 0)[0])])


def test_their_code() -> None:
    check(_all_drawn())


@pytest.mark.slow
def test_their_code_on_cores() -> None:
    check_on_cores(_all_drawn())


def test_legacy_weights_of_floats_are_refused() -> None:
    w = Legacy(0)
    weights = w.tensor((2, 4), "u1", 0.1, 128, data=np.arange(8))
    w.operator(
        "FULLY_CONNECTED", [w.input((1, 4), "f4"), weights], w.tensor((1, 2), "f4"), "FullyConnectedOptions"
    )
    with pytest.raises(UnsupportedModelError, match="uint8 weights require uint8 activations"):
        import_model(w.pack())
