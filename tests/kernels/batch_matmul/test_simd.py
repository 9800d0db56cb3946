"""Products of two computed matrices, int8 and int16, with DSP instructions and with Helium."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.elementwise.activations.clip import Clip
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.choice import avoid, prefer
from tests.kernels.cores import check_all
from tests.kernels.random_networks import merge
from tests.kernels.thumb import measured
from tests.needs import CROSS_TOOLS, need_tools

Shape = tuple[int, ...]


def _graph(
    first: Shape,
    second: Shape,
    turned: bool,
    activation: Clip | None = None,
    zero_points: tuple[int, int] = (-7, 90),
) -> Graph:
    operands = [
        graphs.int8_input(n, shape, 0.1, z)
        for n, shape, z in zip("ab", (first, second), zero_points, strict=True)
    ]
    op = BatchMatmul(False, turned, graphs.int8_element(0.9, 20))
    return graphs.one_node_graph(op, operands, {}, activation)


CASES = (
    _graph((2, 1, 3, 5), (4, 5, 6), False),
    _graph((2, 3, 16), (2, 16, 5), False),
    _graph((4, 33), (7, 33), True, graphs.RELU6),
    _graph((1, 48), (1, 48), True, zero_points=(127, 0)),
    _graph((3, 1), (1, 3), False),
    _graph((5, 2, 3), (3, 8), False),
    _graph((6, 19), (19, 2), False, zero_points=(-128, -128)),
)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize(("core", "suffix"), [("cortex-m4", "__dsp"), ("cortex-m55", "__mve")])
def test_equals_the_reference(core: str, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    avoid(monkeypatch, lambda kernel: not kernel.name.endswith(suffix))
    program = compile_graph(merge(list(CASES)), target.load(core))
    names = [layer.kernel.name for layer in program.layers]
    assert all(name.endswith(suffix) for name in names), names
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_cost(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    cases = [_graph((16, 24), (20, 24), True), _graph((12, 32), (32, 14), False)]
    for name, estimated, counted in measured(compile_graph(merge(cases), target.load(core))):
        assert abs(estimated / counted - 1) < 0.2, (name, estimated, counted)


def test_rows_must_be_in_one_piece() -> None:
    operands = [graphs.int8_input(n, (8, 8)) for n in "ab"]
    graph = graphs.one_node_graph(BatchMatmul(True, False, graphs.int8_element()), operands, {})
    for core in ("cortex-m4", "cortex-m55"):
        assert compile_graph(graph, target.load(core)).layers[0].kernel.name == "s8_batch_matmul__c"


def _int16_graph(first: Shape, second: Shape, turned: bool, activation: Clip | None = None) -> Graph:
    quant = Quant.per_tensor(1e-4)
    operands = [
        Value(n, TensorType(DType.INT16, s, quant)) for n, s in zip("ab", (first, second), strict=True)
    ]
    op = BatchMatmul(False, turned, ElementType(DType.INT16, Quant.per_tensor(3e-4)))
    return graphs.one_node_graph(op, operands, {}, activation)


INT16_CASES = (
    _int16_graph((2, 1, 3, 5), (4, 5, 6), False),
    _int16_graph((2, 3, 16), (2, 16, 5), False),
    _int16_graph((4, 33), (7, 33), True, graphs.RELU6),
    _int16_graph((1, 48), (1, 48), True),
    _int16_graph((3, 1), (1, 3), False),
    _int16_graph((6, 19), (19, 2), False),
)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize(("core", "name"), [("cortex-m4", "dsp"), ("cortex-m55", "mve")])
def test_int16_equals_the_reference(core: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, f"s16_batch_matmul__{name}")
    check_all(INT16_CASES, core, {f"s16_batch_matmul__{name}"})


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_int16_cost(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    cases = [_int16_graph((16, 64), (16, 64), True), _int16_graph((8, 32), (32, 8), False)]
    for name, estimated, counted in measured(compile_graph(merge(cases), target.load(core))):
        assert abs(estimated / counted - 1) < 0.2, (name, estimated, counted)
