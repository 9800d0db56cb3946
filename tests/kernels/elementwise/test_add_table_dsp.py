"""Addition and subtraction for cores with DSP instructions."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.types import Tensor
from microfold.kernels.elementwise.add_table_dsp import find_split
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.sub import Sub
from microfold.options import Options
from tests.kernels import graphs
from tests.kernels.choice import avoid
from tests.kernels.cores import assert_exact, compile_all
from tests.needs import CROSS_TOOLS

simulated = pytest.mark.needs(*CROSS_TOOLS)

SCALES = {
    "generic": (0.031, 0.047, 0.052),
    "equal, halves": (0.1, 0.1, 0.2),
    "equal": (0.1, 0.1, 0.1),
    "one to four": (0.02, 0.08, 0.08),
    "coarse output": (0.013, 0.021, 0.5),
    "saturating": (0.4, 0.3, 0.05),
}


def _graph(
    op: type[Add] | type[Sub],
    scales: tuple[float, float, float],
    activation: Clip | None = None,
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((1, 9, 7, 5), (1, 9, 7, 5)),
    zero_point: int = -11,
) -> Graph:
    operands = [
        graphs.int8_input(n, shape, s, z)
        for n, shape, s, z in zip("ab", shapes, scales, (4, -90), strict=False)
    ]
    return graphs.one_node_graph(op(graphs.int8_element(scales[2], zero_point)), operands, {}, activation)


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("op", [Add, Sub])
def test_split_gives_the_reference_for_all_pairs(
    op: type[Add] | type[Sub], scales: tuple[float, float, float]
) -> None:
    graph = _graph(op, scales, shapes=((256, 1), (1, 256)))
    node = graph.nodes[0]
    first, second = (v.type.with_shape(()) for v in node.operands[:2])
    split = find_split(node.op, first, second, (-128, 127))  # type: ignore[arg-type]
    assert split is not None
    values = np.arange(-128, 128, dtype=np.int64)
    total = split.table.astype(np.int64)[:, None] + values[None, :] * split.factor
    assert np.abs(total).max() < 1 << 31
    result = np.clip(total >> split.shift, -128, 127)
    data = values.astype(np.int8)
    expected = node.op.reference(
        Tensor(graph.inputs[0].type, data[:, None]), Tensor(graph.inputs[1].type, data[None, :])
    )
    assert np.array_equal(result.T if split.swapped else result, expected)


@simulated
def test_equals_the_reference() -> None:
    cases = {
        f"{op.name} {activation}": _graph(op, SCALES["generic"], activation)
        for op in (Add, Sub)
        for activation in (None, graphs.RELU, graphs.RELU6)
    }
    with pytest.MonkeyPatch.context() as patch:
        avoid(patch, lambda kernel: not kernel.name.endswith("__dsp_table"))
        program, layers = compile_all(cases, target.load("cortex-m4"))
    assert all(layer.kernel.name.endswith("__dsp_table") for layer in layers.values())
    assert_exact(program, 8)


def test_leaves_the_rest_to_other_kernels() -> None:
    broadcast = _graph(Add, SCALES["generic"], shapes=((1, 9, 7, 5), (1, 1, 1, 5)))
    small = _graph(Add, SCALES["generic"], shapes=((1, 5), (1, 5)))
    for graph, options in (
        (broadcast, None),
        (small, Options("size")),
    ):
        program = compile_graph(graph, target.load("cortex-m4"), options)
        assert not program.layers[0].kernel.name.endswith("__dsp_table")
