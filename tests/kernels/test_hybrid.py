"""Hybrid product sums in portable C, with DSP instructions and for Helium, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Value, make_node
from microfold.ir.types import DType, TensorType
from microfold.ops.elementwise.conversions.dynamic_quantize import SMALLEST_RANGE, DynamicQuantize
from microfold.options import Options
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.choice import prefer
from tests.kernels.cores import assert_exact, check_all
from tests.kernels.hybrid_graphs import as_blockwise, as_hybrid
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS

SAME3 = ((1, 1), (1, 1))

CONVOLUTIONS = [
    as_hybrid(graphs.conv2d_graph(6, 7, 4, 8, padding=SAME3, activation=graphs.RELU)),
    as_hybrid(
        graphs.conv2d_graph(
            6, 5, 3, 5, padding=((0, 1), (1, 0)), strides=(2, 1), batch=2, activation=graphs.RELU6
        )
    ),
    as_hybrid(graphs.conv2d_graph(19, 6, 1, 6, (10, 4), strides=(2, 2), padding=((4, 5), (1, 1)))),
    as_hybrid(graphs.conv2d_graph(9, 9, 3, 4, dilations=(3, 2), padding=((3, 3), (2, 2)), bias=False)),
    as_hybrid(graphs.conv2d_graph(3, 3, 7, 5, (1, 1), batch=3, per_channel=False), asymmetric=False),
    as_hybrid(graphs.conv2d_graph(4, 4, 64, 3, padding=SAME3, saturated=True)),
    as_hybrid(graphs.conv2d_graph(4, 4, 6, 1, per_channel=False, activation=graphs.RELU)),
]
DEPTHWISE = [
    as_hybrid(graphs.depthwise_conv2d_graph(6, 7, 8, padding=SAME3, activation=graphs.RELU)),
    as_hybrid(graphs.depthwise_conv2d_graph(5, 6, 3, padding=((0, 1), (0, 1)), strides=(2, 2), batch=2)),
    as_hybrid(graphs.depthwise_conv2d_graph(5, 5, 2, multiplier=3, padding=SAME3, per_channel=False)),
    as_hybrid(graphs.depthwise_conv2d_graph(15, 1, 5, (5, 1), padding=((2, 2), (0, 0)), strides=(2, 1))),
    as_hybrid(graphs.depthwise_conv2d_graph(2, 13, 19, (1, 7), padding=((0, 0), (3, 3)))),
]
DILATED = [as_hybrid(graphs.depthwise_conv2d_graph(9, 11, 3, dilations=(2, 3), padding=((2, 2), (3, 3))))]
DENSE = [
    as_hybrid(graphs.fully_connected_graph(23, 7, batch=3)),
    as_hybrid(
        graphs.fully_connected_graph(16, 12, per_channel=True, activation=graphs.RELU6), asymmetric=False
    ),
    as_hybrid(graphs.fully_connected_graph(20, 8, bias=False)),
    as_hybrid(graphs.fully_connected_graph(33, 7, per_channel=True)),
]
BLOCKS = [
    as_blockwise(graphs.fully_connected_graph(96, 10, batch=2), 32),
    as_blockwise(graphs.fully_connected_graph(6, 3, activation=graphs.RELU), 3),
]
FOUR_BITS = [
    as_hybrid(graphs.conv2d_graph(6, 7, 4, 8, padding=SAME3, activation=graphs.RELU, largest=7)),
    as_hybrid(graphs.conv2d_graph(5, 6, 3, 5, (3, 1), strides=(2, 1), batch=2, largest=7)),
    as_hybrid(graphs.conv2d_graph(4, 4, 7, 6, (1, 1), per_channel=False, largest=7), asymmetric=False),
    as_hybrid(graphs.conv2d_graph(4, 4, 64, 3, padding=SAME3, saturated=True, largest=7)),
    as_hybrid(graphs.fully_connected_graph(33, 7, batch=3, per_channel=True, largest=7)),
    as_hybrid(graphs.fully_connected_graph(64, 12, activation=graphs.RELU6, largest=7)),
]
GRAPHS = [*CONVOLUTIONS, *DEPTHWISE, *DILATED, *DENSE, *BLOCKS]
FAMILIES = {
    "convolutions": CONVOLUTIONS[:3],
    "pointwise and wide ones": CONVOLUTIONS[3:],
    "depthwise ones": DEPTHWISE[:3],
    "columns and rows": [*DEPTHWISE[3:], *DILATED],
    "fully connected": [*DENSE, *BLOCKS],
}

PORTABLE = {
    "f32_s16_dynamic_quantize__c",
    "s16_f32_hybrid_conv2d__c_2x2",
    "s16_f32_hybrid_depthwise_conv2d__c_plane",
    "s16_f32_hybrid_fully_connected__c_4",
    "s16_f32_blockwise_fully_connected__c_4",
}
DSP = {
    "f32_s16_dynamic_quantize__fpu",
    "s16_f32_hybrid_conv2d__dsp_4x2",
    "s16_f32_hybrid_depthwise_conv2d__c_plane",  # of the dilated one
    "s16_f32_hybrid_depthwise_conv2d__dsp_1x4",
    "s16_f32_hybrid_fully_connected__dsp_4",
    "s16_f32_blockwise_fully_connected__c_4",
}
KERNELS = {
    "cortex-m0plus": PORTABLE,
    "cortex-m4": DSP,
    "cortex-m7": DSP,
    "cortex-m55": {
        "f32_s16_dynamic_quantize__mve",
        "s16_f32_hybrid_conv2d__mve_1x4",
        "s16_f32_hybrid_depthwise_conv2d__c_plane",  # of few channels
        "s16_f32_hybrid_depthwise_conv2d__mve_8",
        "s16_f32_hybrid_fully_connected__mve_4",
        "s16_f32_blockwise_fully_connected__c_4",
    },
}


@pytest.mark.parametrize("family", FAMILIES)
def test_on_the_host(family: str) -> None:
    program = compile_graph(merge(FAMILIES[family]), target.load("host"))
    assert {layer.kernel.name for layer in program.layers} < PORTABLE
    assert_exact(program, 4)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", KERNELS)
def test_on_a_simulated_core(core: str) -> None:
    check_all(GRAPHS, core, KERNELS[core])


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
def test_speed_keeps_int16_weights() -> None:
    program = check_all(
        [CONVOLUTIONS[0], DENSE[0]], "cortex-m4", KERNELS["cortex-m4"] - _OTHERS, optimize="speed"
    )
    packings = {dict(layer.call.function.spec).get("packing") for layer in program.layers}
    assert packings == {None, "int16"}


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize(
    ("core", "conv2d", "fully_connected"),
    [("cortex-m4", "dsp_4x2", "dsp_4"), ("cortex-m55", "mve_1x4", "mve_4")],
)
def test_weights_of_four_bits(
    core: str, conv2d: str, fully_connected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"s16_s4w_hybrid_conv2d__{conv2d}", f"s16_s4w_hybrid_fully_connected__{fully_connected}"}
    prefer(monkeypatch, *names)
    # At this level nothing but the time of unpacking speaks against them.
    program = compile_graph(merge(FOUR_BITS), target.load(core), Options(optimize="speed"))
    assert names == {layer.kernel.name for layer in program.layers if "hybrid" in layer.kernel.name}
    assert_exact(program, 6)


_OTHERS = {
    "s16_f32_hybrid_depthwise_conv2d__c_plane",
    "s16_f32_hybrid_depthwise_conv2d__dsp_1x4",
    "s16_f32_blockwise_fully_connected__c_4",
}


def quantization(shape: tuple[int, ...], asymmetric: bool) -> Graph:
    x = Value("x", TensorType(DType.FLOAT32, shape))
    node = make_node(DynamicQuantize(asymmetric), [x], ["values", "steps"])
    return Graph("net", (x,), node.outputs, (node,), {})


def rows_with_ties() -> np.ndarray:
    """Rows whose values, or whose zero points, lie halfway between two steps, next to it, and beside any."""
    rng = np.random.default_rng(0)
    halves = rng.integers(-254, 255, (20, 31)) / 2.0
    halves[:, 0] = 127.0
    halves[:, 1] = np.where(np.arange(20) % 2, -127.0, -128.0)
    exact = halves.astype(np.float32)
    rows = [exact, np.nextafter(exact, np.float32(9)), np.nextafter(exact, np.float32(0))]
    rows += [np.abs(exact), -np.abs(exact), (exact * 0.1).astype(np.float32)]
    rows += [
        rng.standard_normal((20, 31)).astype(np.float32) * np.float32(10.0**k) for k in range(-20, 18, 2)
    ]
    edge = np.zeros((5, 31), np.float32)
    edge[1, 3], edge[2, 4], edge[3, 5] = SMALLEST_RANGE, np.nextafter(SMALLEST_RANGE, np.float32(0)), 1e-45
    edge[4] = -0.0
    return np.concatenate([*rows, edge])


@pytest.mark.parametrize("asymmetric", [False, True])
def test_rounding_on_the_host(asymmetric: bool) -> None:
    rows = rows_with_ties()
    program = compile_graph(quantization(rows.shape, asymmetric), target.load("host"))
    assert verify.verify(program, [[rows]]).exact


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_rounding_on_a_simulated_core(core: str, asymmetric: bool) -> None:
    rows = rows_with_ties()
    program = compile_graph(quantization(rows.shape, asymmetric), target.load(core))
    assert verify.verify(program, [[rows]]).exact


def test_rows_are_quantised_by_themselves() -> None:
    rows = np.array([[1.0, -0.5, 0.0], [254.0, 1.0, -3.0], [0.0, 0.0, 0.0]], np.float32)
    values, steps = Interpreter(quantization(rows.shape, False)).run(rows)
    # -63.5 and 0.5 are ties, -1.5 is one, too.
    assert values.tolist() == [[127, -64, 0], [127, 1, -2], [0, 0, 0]]
    np.testing.assert_array_equal(steps, np.array([1 / 127, 2, 1], np.float32))


def test_zero_is_exact_in_asymmetric_rows() -> None:
    rows = np.array([[0.0, 255.0], [-128.0, 127.0], [-51.0, -10.0]], np.float32)
    values, steps = Interpreter(quantization(rows.shape, True)).run(rows)
    assert values.tolist() == [[0, 255], [-128, 127], [-255, -50]]
    np.testing.assert_array_equal(steps, np.array([1, 1, 51 / 255], np.float32))
