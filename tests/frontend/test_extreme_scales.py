"""Scales of dead layers and of masks, denormal or huge: what both references compute, and the C as well."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tflite

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model, trace_model
from tests import oracle
from tests.kernels.cores import KEEP_OPERATORS, assert_exact
from tests.kernels.portable import check
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_modules, need_tools
from tests.sampling import sampled
from tests.tflite_writer import Writer

DENORMAL, HUGE = 3.59e-43, 9.3e35
RNG = np.random.default_rng(0)
Draw = Callable[[Writer], None]


def unary(
    name: str, dtype: str, scale: float, result: tuple[str, float, int], options: str = "", **fields: object
) -> Draw:
    """Return what writes an operator of one operand; `result`: type, scale and zero point."""

    def draw(w: Writer) -> None:
        kind, *quantization = result
        x, y = w.input((2, 9), dtype, scale), w.tensor((2, 9), kind, *(quantization if kind != "f4" else ()))
        w.operator(name, [x], y, options, **fields)

    return draw


def binary(name: str, options: str, dtype: str, first: float, second: float, result: float) -> Draw:
    """Return what writes an operator of two inputs with these scales."""

    def draw(w: Writer) -> None:
        operands = [w.input((2, 9), dtype, first), w.input((2, 9), dtype, second)]
        w.operator(name, operands, w.tensor((2, 9), dtype, result), options)

    return draw


def product(dtype: str, scale: float, weights: float, result: float, *, zero: bool = False) -> Draw:
    """Return what writes a fully connected layer without a bias; `zero`: its weights are."""

    def draw(w: Writer) -> None:
        data = RNG.integers(-127, 128, (4, 6)) * (not zero)
        operands = [w.input((2, 6), dtype, scale), w.tensor((4, 6), "i1", weights, data=data), -1]
        w.operator("FULLY_CONNECTED", operands, w.tensor((2, 4), dtype, result), "FullyConnectedOptions")

    return draw


def dead_mul(w: Writer) -> None:
    """Write a product with a constant that was zero in every run."""
    state = w.tensor((2, 9), "i2", 0.0, data=np.zeros((2, 9)))
    w.operator("MUL", [w.input((2, 9), "i2", 3e-5), state], w.tensor((2, 9), "i2", DENORMAL), "MulOptions")


UNIT = {"i1": ("i1", 1 / 256, -128), "i2": ("i2", 1 / 32768, 0)}
CASES: dict[str, Draw] = {
    "a product with zeros of scale 0": dead_mul,
    "weights that are zero": product("i1", 0.1, 0.1, DENORMAL, zero=True),
    "weights that are zero, int16": product("i2", 1e-4, 0.1, DENORMAL, zero=True),
    "a layer behind a dead one": product("i1", DENORMAL, 0.1, 0.1),
    "a dead layer behind a dead one": product("i2", DENORMAL, 0.01, DENORMAL),
    "a sum with what is dead": binary("ADD", "AddOptions", "i1", DENORMAL, 0.1, 0.1),
    "a huge product": binary("MUL", "MulOptions", "i1", 0.05, 0.002, HUGE),
    "the largest multiplier": unary("QUANTIZE", "i1", 2.0**29, ("i2", 1.0, 0)),
    "softmax of a mask": unary("SOFTMAX", "i2", 30518.51, UNIT["i2"], "SoftmaxOptions", Beta=1.0),
    "softmax of a huge mask": unary("SOFTMAX", "i1", HUGE, UNIT["i1"], "SoftmaxOptions", Beta=1.0),
    "logistic": unary("LOGISTIC", "i2", 1e-13, UNIT["i2"]),
    "tanh": unary("TANH", "i2", 1e-13, UNIT["i2"]),
    "hard swish": unary("HARD_SWISH", "i1", 5.7e-44, ("i1", 2.31e-42, 50)),
    "dequantize": unary("DEQUANTIZE", "i1", DENORMAL, ("f4", 0, 0)),
    "dequantize, huge": unary("DEQUANTIZE", "i1", HUGE, ("f4", 0, 0)),
}


def written(draw: Draw) -> bytes:
    writer = Writer()
    draw(writer)
    return writer.pack()


@pytest.mark.parametrize("draw", CASES.values(), ids=CASES)
def test_as_both_oracles(draw: Draw) -> None:
    need_modules("tflite_micro", "ai_edge_litert")
    data = written(draw)
    traced = trace_model(data)
    calls, wanted = [oracle.inputs_of(traced, 0)], oracle.compared_tensors(data, traced)
    for run, lenient in ((oracle.tflm, ()), (oracle.litert, ("fully_connected",))):
        assert oracle.differences(traced, calls, run(data, calls, wanted), lenient) == []


def test_c_is_as_the_reference() -> None:
    check(merge([import_model(written(draw)) for draw in CASES.values()]))


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m55"]))
def test_c_on_cores(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    graph = merge([import_model(written(draw)) for draw in CASES.values()])
    assert_exact(compile_graph(graph, target.load(core), context=KEEP_OPERATORS), runs=4)


def test_bounds_beyond_int32() -> None:
    """Both references refuse such a file: 6 is 6e12 steps of the result's scale."""
    w = Writer()
    operands = [w.input((2, 9), "i1", 1e-12), w.input((2, 9), "i1", 1e-12)]
    relu6 = tflite.ActivationFunctionType.RELU6
    w.operator("ADD", operands, w.tensor((2, 9), "i1", 1e-12), "AddOptions", FusedActivationFunction=relu6)
    with pytest.raises(UnsupportedModelError, match=r"6 must be less than 2\^31 steps of its result's scale"):
        import_model(w.pack())


def test_multipliers_that_the_references_do_not_define() -> None:
    with pytest.raises(UnsupportedModelError, match=r"must be in \[0, 1\.07374e\+09\); it is 2\.14748e\+09"):
        import_model(written(unary("QUANTIZE", "i1", 2.0**31, ("i2", 1.0, 0))))
