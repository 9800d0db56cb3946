"""Sums of int8 as linear forms, in portable C and for Helium."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.types import Tensor
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize.linear_form import layer_linear_form
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.sub import Sub
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.choice import avoid, layer_of
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools

SCALES = {
    "generic": (0.0313, 0.0471, 0.0527),
    "equal": (0.1, 0.1, 0.1),
    "halves": (0.1, 0.1, 0.2),
    "coarse output": (0.0131, 0.0217, 0.5),
    "saturating": (0.41, 0.33, 0.0537),
}
SHAPES = (
    ((3, 4, 16), (3, 4, 16)),
    ((41,), (41,)),
    ((3, 4, 7), (7,)),
    ((3, 5, 1), (3, 5, 6)),
    ((2, 3, 4, 1), (2, 1, 4, 9)),
    ((1,), (19,)),
)


def _graph(
    op: type[Add] | type[Sub],
    scales: tuple[float, float, float],
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((256, 1), (1, 256)),
    activation: Clip | None = None,
) -> Graph:
    operands = [
        graphs.int8_input(n, shape, s, z)
        for n, shape, s, z in zip("ab", shapes, scales, (4, -90), strict=False)
    ]
    return graphs.one_node_graph(op(graphs.int8_element(scales[2], -11)), operands, {}, activation)


def _layer(graph: Graph) -> LayerContext:
    return layer_of(graph, "host")


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("op", [Add, Sub])
@pytest.mark.parametrize("activation", [None, graphs.RELU6])
def test_gives_the_reference_for_all_pairs(
    op: type[Add] | type[Sub], scales: tuple[float, float, float], activation: Clip | None
) -> None:
    graph = _graph(op, scales, activation=activation)
    form = layer_linear_form(_layer(graph))
    assert form is not None
    a, b = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128), indexing="ij")
    partial = a * form.factors[0] + form.offset
    sums = partial + b * form.factors[1]
    for part in (partial, sums):
        assert part.min() >= -(1 << 31) and part.max() < 1 << 31
    operands = [Tensor(v.type, x.astype(np.int8)) for v, x in zip(graph.inputs, (a, b), strict=True)]
    expected = graph.nodes[0].op.reference(*operands)
    low, high = (-128, 127) if activation is None else activation.bounds(graph.outputs[0].type.element)
    assert np.array_equal(np.clip(sums >> form.shift, low, high), np.clip(expected, low, high))


def test_halves_of_both_signs_have_none() -> None:
    # 7/11 x + 43/110 y: many results lie half-way, where the reference's own rounding decides.
    assert layer_linear_form(_layer(_graph(Add, (0.07, 0.043, 0.11)))) is None


def _cases(suffix: str, core: str) -> None:
    """All pairs, and shapes that leave rests and broadcast; one firmware."""
    need_tools(*CROSS_TOOLS)
    cases = [_graph(op, SCALES["generic"], shapes) for op in (Add, Sub) for shapes in SHAPES]
    cases += [_graph(Add, SCALES["saturating"], SHAPES[2], graphs.RELU6), _graph(Sub, SCALES["halves"])]
    with pytest.MonkeyPatch.context() as patch:
        avoid(patch, lambda kernel: not kernel.name.endswith(suffix))
        program = compile_graph(merge(cases), target.load(core))
    names = [layer.kernel.name for layer in program.layers]
    assert all(name.endswith(suffix) for name in names), names
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.parametrize("core", ["cortex-m3", "cortex-m0plus"])
def test_portable_equals_the_reference(core: str) -> None:
    _cases("__c_linear", core)


@pytest.mark.slow
@pytest.mark.always
def test_mve_equals_the_reference() -> None:
    _cases("__mve", "cortex-m55")
