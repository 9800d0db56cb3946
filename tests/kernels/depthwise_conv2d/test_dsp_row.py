"""Depthwise convolution by code for one shape of image, on simulated cores, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.kernels.depthwise_conv2d.dsp_row import DepthwiseConv2DRowDsp
from microfold.kernels.depthwise_conv2d.dsp_row_schedule import (
    BOTH,
    LOAD,
    LOAD_TWO,
    MULTIPLY,
    RECORD,
    REGISTERS,
    WEIGHT,
    RowSchedule,
    Taps,
    best_schedule,
    overlapped,
    rest_schedule,
)
from microfold.kernels.kernel import KERNELS
from microfold.options import Options
from microfold.program import Program
from microfold.verification import verify
from tests.codegen.test_warnings import check_core
from tests.counts import executed
from tests.kernels import graphs
from tests.kernels.choice import without_biasless
from tests.kernels.depthwise_conv2d.test_dsp import CASES as PLANE_CASES
from tests.kernels.depthwise_conv2d.test_dsp import SAME3
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import quick, sampled

Case = tuple[tuple[Any, ...], dict[str, Any]]

# Windows with too many words of weights, and multipliers that only the general requantisation takes.
REFUSED = ("10x4", "multiplier 8", "multiplier above one")
OWN: list[Case] = [
    # Rows of loops, alone and with a rest; bands.
    ((17, 23, 5), {"padding": SAME3}),
    ((26, 16, 4), {"padding": SAME3, "activation": graphs.RELU, "out": graphs.int8_element(0.05, -128)}),
    ((35, 37, 6), {"padding": ((0, 1), (0, 1)), "strides": (2, 2)}),
    ((48, 40, 4), {"padding": SAME3, "strides": (1, 2), "batch": 2}),
    ((3, 32, 4), {"kernel": (2, 3), "activation": graphs.RELU6}),
    # Weights that move; rests by a function of their own; a row of gaps.
    ((6, 14, 4), {"kernel": (4, 5), "padding": ((1, 2), (2, 2)), "saturated": True}),
    ((11, 11, 5), {"kernel": (5, 5), "padding": ((2, 2), (2, 2))}),
    ((9, 15, 4), {"kernel": (5, 5), "padding": ((1, 2), (2, 1)), "strides": (2, 2)}),
    ((20, 2, 7), {"kernel": (10, 1), "activation": graphs.RELU6}),
    ((9, 21, 3), {"dilations": (1, 3), "padding": ((1, 1), (3, 3))}),
    # Pixels that are far apart.
    ((4, 9, 700), {"kernel": (3, 2)}),
    ((3, 3, 9), {"padding": SAME3, "multiplier": 3}),
    ((1, 1, 5), {"padding": SAME3}),
]
CASES: list[Case] = [case for name, case in PLANE_CASES.items() if name not in REFUSED] + OWN


@pytest.fixture
def only_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [kernel for kernel in KERNELS if isinstance(kernel, DepthwiseConv2DRowDsp)]
    monkeypatch.setattr("microfold.kernels.selection.candidates.KERNELS", kernels)


def _graph(cases: list[Case]) -> Graph:
    return merge([graphs.depthwise_conv2d_graph(*a, seed=i, **o) for i, (a, o) in enumerate(cases)])


def _compiled(graph: Graph, core: str = "cortex-m4", *flags: str, level: str = "speed") -> Program:
    chosen = target.load(core)
    chosen = replace(chosen, cpu_flags=(*chosen.cpu_flags, *flags))
    return compile_graph(graph, chosen, Options(optimize=level))


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize(
    "core_and_flags",
    sampled(
        [
            ("cortex-m4",),
            ("cortex-m4", "-DMF_NO_ASM"),
            ("cortex-m4", "-fno-omit-frame-pointer", "-O0"),
            ("cortex-m7",),
            ("cortex-m33", "-O3"),
        ],
        3,
    ),
    ids=" ".join,
)
@pytest.mark.usefixtures("only_rows")
def test_equals_the_reference(core_and_flags: tuple[str, ...]) -> None:
    need_tools(*CROSS_TOOLS)
    program = _compiled(_graph(CASES), *core_and_flags)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 6))
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.usefixtures("only_rows")
def test_records_with_and_without_biases(biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    if biased:
        without_biasless(monkeypatch)
    program = _compiled(_graph(OWN[1:2]))
    forms = {dict(layer.call.function.spec)["requantize"] for layer in program.layers}
    assert forms == {"short_relu" if biased else "biasless"}
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 6))
    assert result.exact, result.first_difference


@pytest.mark.usefixtures("only_rows")
def test_cost() -> None:
    need_tools(*CROSS_TOOLS)
    cases: list[Case] = [
        ((12, 12, 24), {"padding": SAME3, "activation": graphs.RELU, "out": graphs.int8_element(0.05, -128)}),
        ((6, 6, 40), {"padding": SAME3}),
        ((25, 25, 8), {"padding": SAME3, "strides": (2, 2)}),
        ((20, 1, 60), {"kernel": (5, 1)}),
        ((14, 14, 8), {"kernel": (5, 5), "padding": ((2, 2), (2, 2))}),
    ]
    program = _compiled(_graph(cases))
    estimated = program.estimated_instructions
    assert estimated is not None
    assert estimated == pytest.approx(executed(program), rel=0.1)


@pytest.mark.usefixtures("only_rows")
@pytest.mark.parametrize("cases", quick([[((7, 6, 2), {"padding": SAME3})], CASES, CASES[:1]]))
def test_compilers_are_silent(cases: list[Case], tmp_path: Path) -> None:
    """Text of assembly that fits a C99 string, too, and no helper that only the code in C needs."""
    need_tools(*CROSS_TOOLS, "clang")
    check_core([_compiled(_graph(cases), "cortex-m7")], "cortex-m7", tmp_path)


def test_layers_of_one_shape_share_a_function() -> None:
    graph = _graph([((9, 7, 8), {"padding": SAME3})] * 3)
    program = compile_graph(graph, target.load("cortex-m4"), Options(optimize="speed", flash=1 << 20))
    assert all(isinstance(layer.kernel, DepthwiseConv2DRowDsp) for layer in program.layers)
    assert len({layer.call.function for layer in program.layers}) == 1


def test_weights_need_registers() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("microfold.kernels.selection.candidates.KERNELS", [DepthwiseConv2DRowDsp()])
        with pytest.raises(Exception, match="a channel must have at most 20 weight words; it has 60"):
            _compiled(_graph([((20, 20, 4), {"kernel": (10, 7)})]))


def _run(schedule: RowSchedule, taps: Taps, words: np.ndarray, inputs: np.ndarray) -> list[int]:
    """What the steps compute: `inputs` [rows, elements], `words` [words of weights, 2]."""
    registers: dict[int, tuple[int, int]] = {
        i: tuple(words[taps.words - schedule.held + i]) for i in range(schedule.held)
    }
    held: dict[int, tuple[int, int]] = {}
    inputs_left = list(range(schedule.inputs))
    sums: dict[int, int] = {}
    for kind, *values in schedule.steps:
        if kind in (LOAD, LOAD_TWO):
            register, row, word = values
            for i in range(2 if kind == LOAD_TWO else 1):
                assert register + i in inputs_left
                held[register + i] = tuple(inputs[row, 2 * (word + i) : 2 * (word + i) + 2])
        elif kind == WEIGHT:
            registers[values[0]] = tuple(words[values[1]])
        elif kind == RECORD:
            # No product may read that register any more, and nothing may be loaded there.
            inputs_left.remove(values[0])
        else:
            assert kind == MULTIPLY
            product, output, x, w, begins, _ = values
            assert x in inputs_left
            assert begins == (output not in sums)
            assert not begins or all(j in sums for j in range(output))
            chosen = [(0, 0), (1, 1)] if product == BOTH else [divmod(product - 1, 2)]
            added = sum(int(held[x][i]) * int(registers[w][j]) for i, j in chosen)
            sums[output] = sums.get(output, 0) + added
    return [sums[j] for j in range(schedule.outputs)]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 10])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("temporaries", [2, 4])
@pytest.mark.parametrize("backwards", [False, True])
def test_schedules_compute_sums_of_products(
    rows: int, count: int, stride: int, dilation: int, temporaries: int, backwards: bool
) -> None:
    random = np.random.default_rng(count)
    taps = Taps(rows, count, stride, dilation)
    weights = random.integers(-100, 100, (rows, count))
    inputs = random.integers(-100, 100, (rows, 3 * stride + count * dilation + 2))
    pairs = [(low, high) for low, high in taps.pairs()]
    words = np.array([[w[i], w[j] if j is not None else 0] for w in weights for i, j in pairs])
    main = best_schedule(taps, 4, temporaries, backwards)
    assert main.inputs >= temporaries and main.inputs + main.outputs + main.held <= REGISTERS
    for schedule in (main, *(rest_schedule(taps, n, main, backwards) for n in (1, 2, 3))):
        expected = [
            sum(
                int(inputs[r, j * stride + i * dilation]) * int(weights[r, i])
                for r in range(rows)
                for i in range(count)
            )
            for j in range(schedule.outputs)
        ]
        assert _run(schedule, taps, words, inputs) == expected
        assert _run(overlapped(schedule), taps, words, inputs) == expected


@pytest.mark.parametrize("stride", [1, 2])
def test_products_wait_for_no_loads(stride: int) -> None:
    """Two instructions at a time: a product of a window of nine never follows the load of its word."""
    schedule = overlapped(best_schedule(Taps(3, 3, stride, 1), 4, 2, backwards=True))
    steps = [step for step in schedule.steps if step[0] != RECORD]
    for place, step in enumerate(steps[1:], 1):
        if step[0] == LOAD:
            behind = [other for other in steps[place:] if other[0] == MULTIPLY]
            assert behind[0][3] != step[1]
