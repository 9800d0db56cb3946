"""The legacy uint8 quantisation: LiteRT's results, by int8 where that is the same."""

from __future__ import annotations

import numpy as np
import pytest
import tflite

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from microfold.verification import verify
from tests import oracle
from tests.needs import CROSS_TOOLS, need_modules
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
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
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
}
OPTIONS: dict[str, tuple[str, dict[str, float]]] = {
    "SOFTMAX": ("SoftmaxOptions", {"Beta": 1.0}),
    "LEAKY_RELU": ("LeakyReluOptions", {"Alpha": 0.1}),
    "ADD": ("AddOptions", {"FusedActivationFunction": RELU6}),
    "SUB": ("SubOptions", {}),
    "MUL": ("MulOptions", {}),
}
UNARY = ("RELU", "RELU6", "LEAKY_RELU", "HARD_SWISH", "LOGISTIC", "TANH", "SOFTMAX", "LOG_SOFTMAX")


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


@pytest.mark.parametrize("name", ["L2_NORMALIZATION", "DIV"])
def test_what_is_not_the_same_is_refused(name: str) -> None:
    w = Legacy(0)
    operands = [w.input((2, 4), "u1", *w.element()) for _ in range(2 if name == "DIV" else 1)]
    w.operator(
        name,
        operands,
        w.tensor((2, 4), "u1", 1 / 128, 128),
        "L2NormOptions" if name[0] == "L" else "DivOptions",
    )
    with pytest.raises(UnsupportedModelError, match="uint8 is not supported"):
        import_model(w.pack())
