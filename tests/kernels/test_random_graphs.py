"""Random networks, every tensor against the reference: the host, simulated cores, and the sanitizers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.graph import verify as verify_graph
from microfold.ir.node import Value, make_node
from microfold.ir.types import DType
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import candidates
from microfold.ops.elementwise.add import Add
from microfold.ops.movement.pad import Pad
from microfold.ops.pool2d import MaxPool2D
from microfold.options import OPTIMIZE, WHOLE_IO, Options
from microfold.plan.liveness import computing_nodes
from microfold.program import Program
from microfold.verification import verify
from tests.codegen.test_sanitizers import check as check_with_sanitizers
from tests.kernels.graphs import int8_element, int8_input
from tests.kernels.random_networks import merge, random_network
from tests.needs import need_tools
from tests.sampling import quick, sampled

TYPES = (DType.INT8, DType.FLOAT32, DType.INT16)
CORES = ("cortex-m4", "cortex-m55", "cortex-m3", "cortex-m33", "cortex-m7", "cortex-m0plus")
TOGETHER = 8  # networks of one program


def networks(first: int, dtype: DType, count: int = TOGETHER) -> Graph:
    """One graph of several networks."""
    return merge([random_network(seed, dtype) for seed in range(first, first + count)], first)


def check(first: int, dtype: DType, core: str) -> Program:
    """Compiles with options that follow from the seed, and compares all tensors over ten input sets."""
    graph = networks(first, dtype)
    verify_graph(graph)
    options = Options(optimize=OPTIMIZE[first // TOGETHER % 3], io=WHOLE_IO[first // TOGETHER % 2])
    return assert_exact(graph, core, options)


def assert_exact(graph: Graph, core: str = "host", options: Options | None = None) -> Program:
    program = compile_graph(graph, target.load(core), options)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 10))
    assert result.exact, result.differences
    return program


@pytest.mark.usefixtures("optimized_host_code")
@pytest.mark.parametrize("first", sampled([0, TOGETHER], 2))
@pytest.mark.parametrize("dtype", quick(TYPES))
def test_host(first: int, dtype: DType) -> None:
    need_tools("cc")
    check(first, dtype, "host")


def test_constant_output() -> None:
    need_tools("cc")
    x, array = int8_input("x", (2, 3)), np.arange(6, dtype=np.int8).reshape(2, 3)
    constant = Value("constant", x.type)
    assert_exact(Graph("net", (x,), (constant,), (), {constant: array}))


def test_constant_too_large_to_fold() -> None:
    """Kernels take a constant operand where folding would take too much flash."""
    need_tools("cc")
    x = int8_input("x", (1, 20, 20, 5))
    pixel = Value("pixel", x.type.with_shape((1, 1, 1, 5)))
    padded = make_node(Pad(((0, 0), (9, 10), (10, 9), (0, 0)), 3.0), [pixel], ["padded"])
    pooled = make_node(MaxPool2D((2, 2), (1, 1), ((0, 1), (1, 0))), [padded.output], ["pooled"])
    total = make_node(Add(int8_element()), [x, pooled.output], ["total"])
    array = np.array([-128, 127, 3, 0, 50], np.int8).reshape(1, 1, 1, 5)
    assert_exact(Graph("net", (x,), (total.output,), (padded, pooled, total), {pixel: array}))


@pytest.mark.parametrize("core", quick(CORES))
def test_every_kernel_has_a_cost(core: str) -> None:
    """Kernels that compute a node say at what cost, and lower it."""
    program = compile_graph(networks(1000, DType.INT8), target.load(core))
    for node in computing_nodes(program.graph):
        layer = LayerContext(node, program.graph.constants, program.target)
        for candidate in candidates(layer):
            if candidate.cost is not None:
                assert candidate.cost >= 0
                assert candidate.kernel.lower(layer).scratch >= 0


SEEDS = (2000, 2000 + TOGETHER)
# Usual runs take every third: cores with other instructions, and each seed, with its options, twice.
RUNS = [
    ("cortex-m4", SEEDS[0]),
    ("cortex-m4", SEEDS[1]),
    ("cortex-m7", SEEDS[0]),
    ("cortex-m55", SEEDS[1]),
    ("cortex-m55", SEEDS[0]),
    ("cortex-m7", SEEDS[1]),
    ("cortex-m3", SEEDS[1]),
    ("cortex-m3", SEEDS[0]),
    ("cortex-m0plus", SEEDS[0]),
    ("cortex-m33", SEEDS[0]),
    ("cortex-m0plus", SEEDS[1]),
    ("cortex-m33", SEEDS[1]),
]


@pytest.mark.slow
@pytest.mark.parametrize("run", sampled(RUNS, 4), ids=str)
def test_core(run: tuple[str, int]) -> None:
    core, first = run
    need_tools("arm-none-eabi-gcc", "qemu-system-arm")
    check(first, DType.INT8, core)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", sampled([DType.INT16, DType.FLOAT32], 2))
def test_core_other_types(dtype: DType) -> None:
    need_tools("arm-none-eabi-gcc", "qemu-system-arm")
    check(3000, dtype, "cortex-m4")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", sampled(TYPES, 3))
def test_sanitizers(dtype: DType, tmp_path: Path) -> None:
    need_tools("gcc")
    program = compile_graph(networks(4000, dtype, 5), target.load("host"))
    check_with_sanitizers([program], "gcc", tmp_path)
