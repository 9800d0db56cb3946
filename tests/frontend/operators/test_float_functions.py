"""Functions of float32 elements from -20 to 20, each result compared relative to itself.

Elsewhere floats are compared within 1e-5 of the largest magnitude in a tensor, which hides small results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.frontend.tflite import trace_model
from microfold.host.session import Session
from microfold.ir.interpret import Interpreter
from microfold.verification import verify
from tests import oracle
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_modules
from tests.sampling import sampled
from tests.tflite_writer import Array, Writer

TOLERANCE = 1e-5
TINY = 1e-37  # magnitudes below count as 0: some units flush them

_RANGE = np.concatenate([np.linspace(-20, 20, 1601), *(sign * 10.0 ** np.arange(-6, 1) for sign in (-1, 1))])
_FIRST, _SECOND = (part.ravel() for part in np.meshgrid(np.linspace(-20, 20, 41), np.linspace(-19.7, 20, 41)))
_ROWS = np.concatenate(
    [
        np.repeat(np.linspace(-20, 20, 41)[:, None], 8, axis=1),
        np.pad(np.linspace(-20, 20, 41)[:, None], ((0, 0), (0, 7))),
        np.random.default_rng(0).uniform(-20, 20, (50, 8)),
    ]
)
# Inputs, and the class and the fields of the options.
Case = tuple[Sequence[Array], str, Mapping[str, Any]]
CASES: dict[str, Case] = {
    **dict.fromkeys(
        (
            *("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOG", "LOGISTIC", "NEG", "RELU"),
            *("RELU6", "RELU_N1_TO_1", "ROUND", "RSQRT", "SIGN", "SIN", "SQRT", "SQUARE", "TANH"),
        ),
        ([_RANGE], "", {}),
    ),
    "GELU": ([_RANGE], "GeluOptions", {}),
    "GELU by tanh": ([_RANGE], "GeluOptions", {"Approximate": True}),
    "LEAKY_RELU": ([_RANGE], "LeakyReluOptions", {"Alpha": 0.3}),
    **dict.fromkeys(
        ("ATAN2", "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "PRELU", "SQUARED_DIFFERENCE"),
        ([_FIRST, _SECOND], "", {}),
    ),
    "POW": ([np.abs(_FIRST) + 0.05, _SECOND], "", {}),
    "L2_NORMALIZATION": ([_ROWS], "", {}),
    "LOG_SOFTMAX": ([_ROWS], "", {}),
    "SOFTMAX": ([_ROWS], "SoftmaxOptions", {"Beta": 1.0}),
}


def write(name: str, inputs: Sequence[Array]) -> bytes:
    """The operator on inputs of these shapes."""
    _, options, fields = CASES[name]
    w = Writer()
    operands = [w.input(array.shape, "f4") for array in inputs]
    w.operator(name.split()[0], operands, w.tensor(inputs[0].shape, "f4"), options, **fields)
    return w.pack()


def inputs_of(name: str) -> list[Array]:
    return [array.astype(np.float32) for array in CASES[name][0]]


def assert_close(given: Array, expected: Array) -> None:
    np.testing.assert_allclose(given.reshape(expected.shape), expected, rtol=TOLERANCE, atol=TINY)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_references(name: str) -> None:
    need_modules("tflite_micro", "ai_edge_litert")
    inputs = inputs_of(name)
    data = write(name, inputs)
    (index,) = oracle.operator_outputs(data)
    (ours,) = Interpreter(trace_model(data).graph).run(*inputs)
    try:
        (expected,) = oracle.tflm(data, [inputs], [index])
    except oracle.OracleError:
        (expected,) = oracle.litert(data, [inputs], [index])
    assert_close(ours, expected[index])


def test_generated_code() -> None:
    graph = merge([trace_model(write(name, inputs_of(name))).graph for name in CASES])
    inputs = [array for name in CASES for array in inputs_of(name)]
    results = Session(compile_graph(graph, target.load("host"))).run(*inputs)
    for name, given, expected in zip(CASES, results, Interpreter(graph).run(*inputs), strict=True):
        np.testing.assert_allclose(given, expected, rtol=TOLERANCE, atol=TINY, err_msg=name)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m0plus", "cortex-m55"]))
def test_generated_code_on_cores(core: str) -> None:
    """Constant inputs make `verify` compare each result relative to itself."""
    shape = (1, 6)
    counts = {name: len(inputs) for name, (inputs, _, _) in CASES.items()}
    graphs = [trace_model(write(name, [np.zeros(shape)] * count)).graph for name, count in counts.items()]
    program = compile_graph(merge(graphs), target.load(core))
    calls: list[list[Array]] = []
    # Between -14.5 and -13, results of GELU are subnormal, and C libraries differ.
    values = [value for value in np.linspace(-20, 20, 81) if not -14.5 < value < -13]
    for value in (*values, -9.01, -4.87, 1e-6):
        constant, other = np.full(shape, value, np.float32), np.full(shape, 1.7, np.float32)
        operands = {name: [constant, other][:count] for name, count in counts.items()}
        operands["POW"] = [other, constant]
        calls.append([array for name in CASES for array in operands[name]])
    found = verify.verify(program, calls)
    assert found.exact, found.differences
