"""Sums, products and extrema of int8 for cores with DSP instructions, bit for bit."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.op import Op
from microfold.ir.types import ElementType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.options import Options
from tests.kernels import graphs
from tests.kernels.choice import avoid
from tests.kernels.cores import assert_exact, compile_all, load
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

M4 = target.load("cortex-m4")
# All pairs of values; whole words and rests; an operand that stays the same, on either side; nested loops.
SHAPES = (
    ((256, 1), (1, 256)),
    ((3, 4, 16), (3, 4, 16)),
    ((43,), (43,)),
    ((13, 12), (12,)),
    ((9, 4, 1), (9, 4, 9)),
    ((2, 3, 4, 1), (2, 1, 4, 17)),
    ((61,), (1,)),
    ((1,), (61,)),
    ((1,), (1,)),
)
SUFFIXES = {Add: "__dsp_linear", Sub: "__dsp_linear", Mul: "__dsp", Maximum: "__dsp", Minimum: "__dsp"}


def _graph(
    op: Op,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    activation: Clip | None = None,
    scales: tuple[float, float] = (0.0313, 0.0471),
    zero_points: tuple[int, int] = (4, -90),
) -> Graph:
    parts = zip("ab", shapes, scales, zero_points, strict=True)
    return graphs.one_node_graph(op, [graphs.int8_input(*part) for part in parts], {}, activation)


def _same(op: Op, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Graph:
    """Operands of extrema have one type."""
    return _graph(op, shapes, scales=(0.05, 0.05), zero_points=(3, 3))


def _element(scale: float = 0.0527, zero_point: int = -11) -> ElementType:
    return graphs.int8_element(scale, zero_point)


CASES: dict[str, Graph] = {
    **{f"{op.name} {s}": _graph(op(_element()), s) for op in (Add, Sub) for s in SHAPES},
    **{f"add, relu6 {s}": _graph(Add(_element()), s, graphs.RELU6) for s in SHAPES[:4]},
    # Results of either sign, and from the zero point on; multipliers below and above one.
    **{f"mul {s}": _graph(Mul(_element(0.09)), s) for s in SHAPES},
    **{f"mul, relu6 {s}": _graph(Mul(_element(0.09)), s, graphs.RELU6) for s in SHAPES[:4]},
    "mul, relu": _graph(Mul(_element(0.09, -128)), SHAPES[0], graphs.RELU),
    **{f"mul above one {s}": _graph(Mul(_element(0.0005, 5)), s) for s in (*SHAPES[:2], SHAPES[6])},
    **{f"{op.name} {s}": _same(op(), s) for op in (Maximum, Minimum) for s in SHAPES},
}


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("flag", sampled(["", "-O3", "-Os"], 3))
def test_equals_the_reference(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _check("cortex-m4", flag, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["", "-Os -fno-omit-frame-pointer", "-DMF_NO_ASM"])
def test_two_instructions_at_a_time(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _check("cortex-m7", flag, monkeypatch)


def _check(core: str, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    avoid(monkeypatch, lambda kernel: not kernel.name.endswith(SUFFIXES.get(kernel.op, "")))
    program, layers = compile_all(CASES, load(core, *flag.split()))
    for name, layer in layers.items():
        assert layer.kernel.name.endswith(SUFFIXES[type(layer.node.op)]), name
    assert_exact(program, 8)


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        (Add(_element()), "s8_add__dsp_linear"),
        (Sub(_element()), "s8_sub__dsp_linear"),
        (Mul(_element()), "s8_mul__dsp"),
    ],
)
def test_is_chosen(op: Op, kernel: str) -> None:
    program = compile_graph(_graph(op, ((4, 5, 16), (4, 5, 16))), M4, Options(optimize="speed"))
    assert [layer.kernel.name for layer in program.layers] == [kernel]


def test_a_sum_without_a_linear_form_has_a_table() -> None:
    op = Add(graphs.int8_element(0.11, -11))
    graph = _graph(op, ((1, 9, 7, 5), (1, 9, 7, 5)), scales=(0.07, 0.043))
    assert compile_graph(graph, M4).layers[0].kernel.name == "s8_add__dsp_table"
