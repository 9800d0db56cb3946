"""Transposed convolutions by convolution kernels."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.types import Array, DType, Quant, TensorType
from microfold.kernels.transpose_conv2d.via_conv2d import Phases, find_phases, phase_filters
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.window import Pair
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.choice import avoid
from tests.kernels.random_networks import merge
from tests.kernels.thumb import measured
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

VARIANTS = {
    "host": "__c_",
    "cortex-m0plus": "__thumb1_",
    "cortex-m3": "__thumb2_",
    "cortex-m4": "__dsp_",
    "cortex-m55": "__mve_",
}


def _graph(
    image: tuple[int, int, int, int],
    filters: int,
    kernel: Pair,
    strides: Pair,
    offset: Pair,
    size: Pair,
    seed: int = 0,
) -> Graph:
    rng = np.random.default_rng(seed)
    shape = (filters, *kernel, image[3])
    scales = rng.uniform(0.002, 0.006, filters).astype(np.float32)
    quant = Quant(tuple(map(float, scales)), (0,) * filters, 0)
    constants: dict[Value, Array] = {
        Value("weights", TensorType(DType.INT8, shape, quant)): rng.integers(-128, 128, shape).astype(
            np.int8
        ),
        Value("bias", TensorType(DType.INT32, (filters,))): rng.integers(-900, 900, filters).astype(np.int32),
    }
    op = TransposeConv2D(strides, offset, size, graphs.int8_element())
    return graphs.one_node_graph(op, [graphs.int8_input("x", image)], constants, graphs.RELU6)


CASES = (
    _graph((1, 5, 6, 4), 3, (3, 3), (2, 2), (0, 0), (10, 12)),
    _graph((2, 4, 3, 5), 2, (4, 4), (2, 2), (1, 1), (8, 6)),
    # Filters are smaller than blocks: some outputs meet no input.
    _graph((1, 3, 4, 3), 4, (1, 2), (2, 3), (0, 0), (6, 12)),
    _graph((1, 3, 7, 8), 5, (2, 2), (2, 2), (0, 0), (6, 14)),
    _graph((1, 4, 5, 3), 4, (5, 3), (2, 1), (1, 2), (9, 4)),
    _graph((1, 1, 1, 6), 7, (3, 5), (3, 2), (0, 1), (3, 4)),
)


def test_phases() -> None:
    assert find_phases(5, 3, 2, 0, 10) == Phases(2, 2, 5, 0, (1, 0))
    assert find_phases(4, 4, 2, 1, 8) == Phases(2, 2, 5, -1, (1, 1))
    # Four outputs of two inputs: the last phase of the second block is not wanted.
    assert find_phases(2, 3, 3, 1, 4) == Phases(3, 1, 2, -1, (0, 0))


def test_filters_of_phases_are_mirrored() -> None:
    filters = np.arange(1, 10).reshape(1, 3, 3, 1)
    rows = find_phases(4, 3, 2, 0, 8)
    found = phase_filters(filters, rows, rows)
    assert found[..., 0].tolist() == [
        [[9, 7], [3, 1]],
        [[0, 8], [0, 2]],
        [[0, 0], [6, 4]],
        [[0, 0], [0, 5]],
    ]


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", VARIANTS)
def test_equals_the_reference(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if core != "host":
        need_tools(*CROSS_TOOLS)
    avoid(monkeypatch, lambda kernel: kernel.op is TransposeConv2D and VARIANTS[core] not in kernel.name)
    program = compile_graph(merge(list(CASES)), target.load(core))
    assert all(VARIANTS[core] in layer.kernel.name for layer in program.layers)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 6))
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", sampled([core for core in VARIANTS if core != "host"], 2))
def test_cost(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    case = _graph((1, 8, 8, 16), 8, (4, 4), (2, 2), (1, 1), (16, 16))
    ((name, estimated, counted),) = measured(compile_graph(case, target.load(core)))
    assert VARIANTS[core] in name
    assert abs(estimated / counted - 1) < 0.25, (estimated, counted)
