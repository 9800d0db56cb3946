"""float32 weights that are multiples of steps: found, packed, and computed with."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.kernels.packing.byte_weights import split_steps
from microfold.options import Options
from tests.kernels import graphs
from tests.kernels.choice import prefer
from tests.kernels.cores import assert_exact
from tests.kernels.portable import as_float
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS

KERNELS = {
    "f32_s8w_conv2d__c_2x2",
    "f32_s8w_depthwise_conv2d__c_plane",
    "f32_s8w_fully_connected__c_4",
}


def test_multiples_are_found() -> None:
    rng = np.random.default_rng(0)
    multiples = rng.integers(-127, 128, (9, 70)).astype(np.int8)
    multiples[0] = 0
    multiples[1] = rng.integers(-8, 8, 70)
    multiples[2, 5] = -128
    steps = (10.0 ** rng.uniform(-4, 1, 9)).astype(np.float32)
    found = split_steps(multiples.astype(np.float32) * steps[:, None])
    assert found is not None
    # A channel may be multiples of a larger step, too.
    np.testing.assert_allclose(found[0] * found[1][:, None], multiples * steps[:, None], rtol=3e-7)
    assert (np.abs(found[0].astype(int)) <= np.abs(multiples.astype(int))).all()


@pytest.mark.parametrize("place", [3, 60])
def test_one_other_weight_is_enough(place: int) -> None:
    rng = np.random.default_rng(1)
    matrix = (rng.integers(-127, 128, (4, 70)) * 0.01).astype(np.float32)
    assert split_steps(matrix) is not None
    matrix[3, place] *= np.float32(1 + 1e-5)
    assert split_steps(matrix) is None


def in_steps(graph: Graph) -> Graph:
    """A layer of float32 whose weights are multiples of steps that differ from channel to channel."""
    floats = as_float(graph)
    weights = next(iter(floats.constants))
    array = floats.constants[weights]
    axis = 3 if "depthwise" in floats.nodes[0].op.name else 0
    steps = np.random.default_rng(0).uniform(0.5, 2, array.shape[axis]).astype(np.float32)
    scaled = array * steps.reshape([-1 if i == axis else 1 for i in range(array.ndim)])
    return replace(floats, constants={**floats.constants, weights: scaled})


GRAPHS = [
    in_steps(graphs.conv2d_graph(6, 7, 4, 5, padding=((1, 1), (1, 1)), activation=graphs.RELU)),
    in_steps(graphs.conv2d_graph(3, 3, 7, 4, (1, 1), batch=2, bias=False)),
    in_steps(graphs.depthwise_conv2d_graph(6, 7, 3, multiplier=2, padding=((1, 1), (1, 1)))),
    in_steps(graphs.depthwise_conv2d_graph(4, 13, 2, (1, 7), activation=graphs.RELU6)),
    in_steps(graphs.fully_connected_graph(23, 7, batch=2)),
    in_steps(graphs.fully_connected_graph(16, 3, activation=graphs.RELU)),
]


def check(core: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        prefer(patch, *KERNELS)
        program = compile_graph(merge(GRAPHS), target.load(core), Options(optimize="size"))
    assert {layer.kernel.name for layer in program.layers} == KERNELS
    assert_exact(program, 6)


def test_on_the_host() -> None:
    check("host")


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4"])
def test_on_a_simulated_core(core: str) -> None:
    check(core)
