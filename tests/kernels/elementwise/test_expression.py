"""Expressions of float32 elements: one loop of them is what their operators give one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.text import parse
from microfold.ir.types import Array, DType, Quant, Shape, TensorType
from microfold.ops.elementwise.expression import Call, Expression
from microfold.passes.context import PassContext
from microfold.simulate.program import simulator
from microfold.verification import verify
from tests.kernels.choice import avoid, prefer
from tests.kernels.cores import check_all
from tests.kernels.expression_cases import ARITHMETIC, CHOICES, LIBRARY, QUOTIENTS, cases, drawn
from tests.kernels.graphs import float_input, one_node_graph
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

# Whole groups of four and rests, rows shorter than a group, and nests of loops.
SHAPES: tuple[Shape, ...] = (
    (1, 3, 5, 8),
    (1, 2, 3, 7),
    (4, 3),
    (2, 3, 4, 2),
    (1,),
    (5,),
    (67,),
    (2, 1, 6, 9),
)


def _drawn(*pools: tuple[tuple[str, tuple[float, ...]], ...]) -> list[Graph]:
    rng = np.random.default_rng(3)
    return [drawn(rng, shape, pool, 5) for pool in pools for shape in SHAPES for _ in range(3)]


@pytest.mark.parametrize("index", range(3))
def test_on_the_host(index: int) -> None:
    for graph in cases(10, SHAPES, seed=index):
        program = compile_graph(graph, target.load("host"))
        assert [layer.kernel.name for layer in program.layers] == ["f32_expression__c"]
        result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 4))
        assert result.exact, result.differences


@pytest.mark.slow
@pytest.mark.always
def test_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, "f32_expression__mve")
    check_all(_drawn(ARITHMETIC, CHOICES), "cortex-m55", {"f32_expression__mve"})


def _dequantized(length: int, first: DType, second: DType) -> Graph:
    """Of operands of integers, one of which is read twice."""
    x, z = (
        Value(name, TensorType(dtype, (3, length), Quant.per_tensor(scale, point)))
        for name, dtype, scale, point in (("x", first, 0.1, 7), ("z", second, 0.03, 0))
    )
    steps: tuple[Call, ...] = (
        ("dequantize", (0,), ()),
        ("dequantize", (1,), ()),
        ("mul", (2, 3), ()),
        ("clip", (4,), (0.0, 6.0)),
        ("add", (5, 2), ()),
    )
    return one_node_graph(Expression(steps), [x, z], {})


DEQUANTIZED = [
    _dequantized(length, first, second)
    for length in (3, 8, 11)
    for first, second in ((DType.INT8, DType.INT16), (DType.UINT8, DType.INT8))
]


def _fits(graph: Graph) -> bool:
    """Not so many operands and values in use that registers do not suffice, and no clip of quotients."""
    program = compile_graph(graph, target.load("cortex-m4"))
    return program.layers[0].kernel.name == "f32_expression__fpu"


@pytest.mark.slow
@pytest.mark.always
def test_floating_point_units(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, "f32_expression__fpu")
    fitting = list(filter(_fits, _drawn(ARITHMETIC, QUOTIENTS)))
    assert len(fitting) > 30
    check_all([*fitting, *DEQUANTIZED], "cortex-m4", {"f32_expression__fpu"})


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m0plus"]))
def test_portable(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, "f32_expression__c")
    quantized = [graph for graph in cases(40, SHAPES) if graph.inputs[0].type.quant is not None]
    check_all([*_drawn(CHOICES, LIBRARY), *quantized, *DEQUANTIZED], core, {"f32_expression__c"})


PRODUCTS_AND_SUMS = """
graph @g(%x: float32[301], %z: float32[301]) -> (%y) {
  %k = constant float32[] [0.37]
  %a: float32[301] = mul(%x, %z)
  %b: float32[301] = add(%a, %k)
  %c: float32[301] = mul(%b, %x)
  %d: float32[301] = sub(%z, %c)
  %e: float32[301] = squared_difference(%d, %x)
  %y: float32[301] = add(%e, %a)
}
"""


def _results(graph: Graph, core: str, fused: bool, *flags: str) -> list[Array]:
    loaded = target.load(core)
    loaded = replace(loaded, cpu_flags=(*loaded.cpu_flags, *flags))
    disabled = () if fused else ("fuse_elementwise",)
    program = compile_graph(graph, loaded, context=PassContext(disabled_pass=disabled))
    assert (len(program.layers) == 1) is fused
    calls = verify.input_sets([buffer.type for buffer in program.inputs], 3)
    with simulator(program) as machine:
        return [array for outputs in machine.run(calls, layers=False).outputs for array in outputs]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("core", "kernel"),
    [("cortex-m4", "f32_expression__c"), ("cortex-m4", "chosen"), ("cortex-m55", "chosen")],
)
def test_nothing_is_contracted(core: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bit is that of one loop after the other, also where the compiler may contract."""
    need_tools(*CROSS_TOOLS)
    graph = parse(PRODUCTS_AND_SUMS)
    separate = _results(graph, core, False)
    if kernel != "chosen":
        # Others would be faster apart.
        avoid(monkeypatch, lambda other: not other.name.endswith("__c"))
    together = _results(graph, core, True, "-ffp-contract=fast")
    for first, second in zip(separate, together, strict=True):
        np.testing.assert_array_equal(first.view(np.uint32), second.view(np.uint32))


def test_operands_may_lie_under_the_result() -> None:
    """In place of an operand of the same size; smaller ones are read again and again."""
    steps = (("mul", (0, 1), ()), ("add", (2, 0), ()))
    operands = [float_input("x", (1, 4, 4, 8)), float_input("z", (8,))]
    program = compile_graph(one_node_graph(Expression(steps), operands, {}), target.load("host"))
    assert program.arena.size == 4 * 4 * 8 * 4 + 32


def test_what_is_not_a_number_stays() -> None:
    steps = (("add", (0, 1), ()), ("clip", (2,), (-1.0, 2.0)), ("abs", (3,), ()))
    graph = one_node_graph(Expression(steps), [float_input("a", (3,)), float_input("b", (3,))], {})
    session = Session(compile_graph(graph, target.load("host")))
    a = np.array([np.nan, np.inf, -np.inf], np.float32)
    (result,) = session.run(a, np.zeros(3, np.float32))
    np.testing.assert_array_equal(result, [np.nan, 2, 1])
