"""float32 weights that are kept as float16: the same bits, in half of the flash, where it pays."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.types import Array, DType, Quant, TensorType
from microfold.kernels.packing import float16_weights
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.options import Options
from microfold.program import Program
from microfold.simulate.program import simulator
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.choice import PACKED, avoid
from tests.kernels.portable import as_float
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

SAME3 = ((1, 1), (1, 1))


def as_halves(graph: Graph, *, seed: int = 0) -> Graph:
    """A one-node int8 graph in float32, with weights that are float16, subnormal ones among them."""
    made = as_float(graph)
    weights = made.nodes[0].operands[1]
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 0x3C00, weights.type.shape, np.uint16) | rng.choice(
        np.array([0, 0x8000], np.uint16), weights.type.shape
    )
    bits.reshape(-1)[:5] = (0, 0x8000, 1, 0x83FF, 0x0400)
    return replace(made, constants={**made.constants, weights: bits.view(np.float16).astype(np.float32)})


def _transposed(kernel: tuple[int, int]) -> Graph:
    """Odd kernels are no multiple of the stride, which only portable C computes."""
    rng = np.random.default_rng(0)
    shape = (10, *kernel, 7)
    weights = Value("weights", TensorType(DType.INT8, shape, Quant.per_tensor(0.01)))
    constants: dict[Value, Array] = {
        weights: rng.integers(-128, 128, shape).astype(np.int8),
        Value("bias", TensorType(DType.INT32, (10,))): rng.integers(-900, 900, 10).astype(np.int32),
    }
    op = TransposeConv2D((2, 2), (1, 1), (6, 10), graphs.int8_element())
    return graphs.one_node_graph(op, [graphs.int8_input("x", (1, 3, 5, 7))], constants, graphs.RELU)


GRAPHS: dict[str, Graph] = {
    "conv 3x3, relu": graphs.conv2d_graph(6, 7, 4, 8, padding=SAME3, activation=graphs.RELU),
    "conv 27 products, batch 2": graphs.conv2d_graph(
        3, 5, 3, 9, padding=((0, 1), (1, 0)), strides=(2, 1), batch=2, activation=graphs.RELU6
    ),
    "conv 14 products": graphs.conv2d_graph(5, 5, 2, 13, (7, 1), padding=((3, 3), (0, 0)), bias=False),
    "conv 1x1, odd": graphs.conv2d_graph(3, 5, 13, 17, (1, 1), batch=3, activation=graphs.Clip(-1.0, 1.0)),
    "depthwise 3x3, odd": graphs.depthwise_conv2d_graph(
        7, 6, 27, padding=((0, 1), (0, 1)), strides=(2, 2), batch=2, activation=graphs.RELU
    ),
    "depthwise 5x5, dilated": graphs.depthwise_conv2d_graph(
        9, 11, 10, (5, 5), dilations=(1, 2), padding=((2, 2), (4, 4)), bias=False
    ),
    "dense": graphs.fully_connected_graph(45, 38, activation=graphs.RELU),
    "dense 23 inputs, batch 3": graphs.fully_connected_graph(23, 19, batch=3, bias=False),
    "dense 6 inputs": graphs.fully_connected_graph(6, 50),
    "transposed rows": _transposed((4, 4)),
    "transposed": _transposed((3, 5)),
}
OPERATORS = {
    "conv": "conv2d",
    "depthwise": "depthwise_conv2d",
    "dense": "fully_connected",
    "transposed": "transpose_conv2d",
}
VARIANTS = {
    ("conv", "cortex-m4"): "fpu_4x4",
    ("conv", "cortex-m55"): "mve_4x4",
    ("depthwise", "cortex-m4"): "fpu_4x4",
    ("depthwise", "cortex-m55"): "mve_4x4",
    ("dense", "cortex-m4"): "fpu_4",
    ("dense", "cortex-m55"): "mve_16",
}
PORTABLE = {"conv": "c_2x2", "depthwise": "c_plane", "dense": "c_4", "transposed": "c"}


def _kernel(name: str, core: str) -> str:
    kind = name.split()[0]
    variant = VARIANTS.get((kind, core), PORTABLE[kind])
    if name == "transposed rows":
        variant = {"cortex-m4": "fpu_4x4_rows", "cortex-m55": "mve_4x4_rows"}.get(core, variant)
    return f"f32_f16w_{OPERATORS[kind]}__{variant}"


def _results(program: Program) -> bytes:
    calls = verify.input_sets([b.type for b in program.inputs], 5)
    if not program.target.board:
        session = Session(program)
        return b"".join(array.tobytes() for inputs in calls for array in session.run(*inputs))
    with simulator(program) as machine:
        results = machine.run(calls, layers=False).outputs
    return b"".join(array.tobytes() for outputs in results for array in outputs)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", sampled(["cortex-m4", "host", "cortex-m55", "cortex-m3"], 3))
def test_the_bits_are_those_of_float32_weights(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if core != "host":
        need_tools(*CROSS_TOOLS)
    graph = merge([as_halves(graph) for graph in GRAPHS.values()])
    with monkeypatch.context() as patch:
        avoid(patch, lambda kernel: bool(kernel.trades & PACKED))
        plain = compile_graph(graph, target.load(core), Options(optimize="speed"))
    assert not any(layer.kernel.trades & PACKED for layer in plain.layers)
    wanted = sorted(_kernel(name, core) for name in GRAPHS)
    avoid(monkeypatch, lambda kernel: kernel.name not in wanted)
    halves = compile_graph(graph, target.load(core))
    assert sorted(layer.kernel.name for layer in halves.layers) == wanted
    assert halves.weight_bytes < 0.65 * plain.weight_bytes
    assert _results(halves) == _results(plain)


def test_what_fits() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].astype(np.float32)
    assert float16_weights.fits(finite)
    for value in (65520.0, 1e-8, 0.1, np.inf, np.nan, 2.0**-25, 1 + 2.0**-11):
        assert not float16_weights.fits(np.array([0.5, value], np.float32))


@pytest.mark.parametrize("shape", [(4, 8), (7, 3), (1, 1), (5, 6)])
def test_packing(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(0).normal(0, 1, shape).astype(np.float16).astype(np.float32)
    words = float16_weights.pack_pairs(matrix)
    assert words.shape == (-(-shape[0] // 4), -(-shape[1] // 2), 4) and words.dtype == np.uint32
    np.testing.assert_array_equal(float16_weights.unpack_pairs(words, *shape), matrix)


def _chosen(graph: Graph, core: str, optimize: str) -> str:
    program = compile_graph(graph, target.load(core), Options(optimize=optimize))
    return program.layers[0].kernel.name


def test_selection() -> None:
    graph = as_halves(graphs.fully_connected_graph(64, 64))
    assert _chosen(graph, "cortex-m4", "balanced") == "f32_f16w_fully_connected__fpu_4"
    assert _chosen(graph, "cortex-m4", "speed") == "f32_fully_connected__fpu_4"
    assert _chosen(graph, "cortex-m3", "speed") == "f32_fully_connected__c_4"
    assert _chosen(graph, "cortex-m3", "size") == "f32_f16w_fully_connected__c_4"


def test_one_weight_that_does_not_fit() -> None:
    graph = as_halves(graphs.fully_connected_graph(64, 64))
    weights = graph.nodes[0].operands[1]
    changed: Array = graph.constants[weights].copy()
    changed[63, 63] = np.nextafter(changed[63, 63], np.float32(2))
    graph = replace(graph, constants={**graph.constants, weights: changed})
    assert _chosen(graph, "cortex-m4", "size") == "f32_fully_connected__fpu_4"
    program = compile_graph(graph, target.load("cortex-m4"))
    assert {c.array.dtype for c in program.layers[0].call.constants.values()} == {
        np.dtype(DType.FLOAT32.numpy)
    }


def test_a_budget_of_flash_is_met_by_halves() -> None:
    graph = as_halves(graphs.fully_connected_graph(64, 64))
    program = compile_graph(graph, target.load("cortex-m4"), Options(flash=12_000))
    assert [layer.kernel.name for layer in program.layers] == ["f32_f16w_fully_connected__fpu_4"]
