"""Addition and subtraction for Helium."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target, verify
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.types import Tensor
from microfold.kernels.add_mve import find_linear_form
from microfold.kernels.kernel import Site
from microfold.ops.add import Add
from microfold.ops.clip import Clip
from microfold.ops.sub import Sub
from microfold.options import Options
from microfold.simulate import toolchain
from tests.kernels import graphs

simulated = pytest.mark.skipif(
    bool(toolchain.missing_tools()), reason="; ".join(toolchain.missing_tools()) or "tools"
)

SCALES = {
    "generic": (0.0313, 0.0471, 0.0527),
    "equal": (0.1, 0.1, 0.1),
    "coarse output": (0.0131, 0.0217, 0.5),
    "saturating": (0.41, 0.33, 0.0537),
}


def _graph(
    op: type[Add] | type[Sub],
    scales: tuple[float, float, float],
    shape: tuple[int, ...] = (1, 9, 7, 4),
    activation: Clip | None = None,
) -> Graph:
    operands = [graphs.int8_input(n, shape, s, z) for n, s, z in zip("ab", scales, (4, -90), strict=False)]
    return graphs.one_node_graph(op(graphs.int8_element(scales[2], -11)), operands, {}, activation)


def _site(graph: Graph) -> Site:
    return Site(graph.nodes[0], graph, target.load("cortex-m55"), Options())


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("op", [Add, Sub])
def test_linear_form_gives_the_reference_for_all_pairs(
    op: type[Add] | type[Sub], scales: tuple[float, float, float]
) -> None:
    graph = _graph(op, scales, (256, 256))
    form = find_linear_form(_site(graph))
    assert form is not None
    a, b = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128), indexing="ij")
    sums = a * form.factors[0] + b * form.factors[1] + form.offset
    assert sums.min() >= -(1 << 31) and sums.max() < 1 << 31
    operands = [Tensor(v.type, x.astype(np.int8)) for v, x in zip(graph.inputs, (a, b), strict=True)]
    expected = graph.nodes[0].op.reference(*operands)
    assert np.array_equal(np.clip(sums >> form.shift, -128, 127), expected)


def test_halves_of_both_signs_have_no_linear_form() -> None:
    # 7/11 x + 43/110 y: many results lie half-way, where the reference's own rounding decides.
    assert find_linear_form(_site(_graph(Add, (0.07, 0.043, 0.11)))) is None


@simulated
@pytest.mark.parametrize(
    ("op", "shape", "activation"),
    [
        (Add, (1, 5, 5, 7), None),
        (Add, (2, 4, 4), graphs.RELU),
        (Sub, (41,), graphs.RELU6),
        (Sub, (1, 3), None),
    ],
)
def test_equals_the_reference(
    op: type[Add] | type[Sub], shape: tuple[int, ...], activation: Clip | None
) -> None:
    program = compile_graph(_graph(op, SCALES["generic"], shape, activation), target.load("cortex-m55"))
    assert program.layers[0].kernel.name.endswith("__mve")
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference
