"""Weights of four bits: kernels on simulated cores and the host, bit for bit; what chooses them; packing."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.types import Quant
from microfold.kernels.conv2d import int4_pairs
from microfold.kernels.kernel import Kernel
from microfold.kernels.packing import int4, int4_dsp, int4_mve, mve, smlad, two_pixels_per_word
from microfold.options import Options
from microfold.program import Program
from microfold.verification import verify
from tests.kernels.choice import PACKED, avoid
from tests.kernels.graphs import NO_PADDING, RELU, RELU6, conv2d_graph, fully_connected_graph, int8_element
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import quick

SAME = ((1, 1), (1, 1))
CORES = ("cortex-m4", "cortex-m3", "cortex-m0plus", "cortex-m55")
RELU_OUT = int8_element(0.05, -128)


def dense() -> list[Graph]:
    """Fully connected layers; together they are worth the code."""
    return [
        fully_connected_graph(64, 40, largest=7),
        fully_connected_graph(1, 9, largest=7, seed=1),
        fully_connected_graph(37, 17, largest=7, batch=3, activation=RELU6, per_channel=True),
        fully_connected_graph(31, 3, largest=7, bias=False, seed=2),
        fully_connected_graph(40, 12, largest=7, activation=RELU, out=RELU_OUT),
        fully_connected_graph(33, 8, largest=7, out=int8_element(0.00002, 3)),
        # Sums in parts (DSP), and bytes apart (vectors).
        fully_connected_graph(1030, 13, largest=7, saturated=True, out=int8_element(0.3, 7)),
        fully_connected_graph(600, 5, largest=7, saturated=True, per_channel=True, out=int8_element(0.3, 7)),
    ]


def images() -> list[Graph]:
    """Convolutions."""
    return [
        conv2d_graph(5, 3, 16, 21, (1, 1), largest=7),
        conv2d_graph(3, 3, 37, 40, (1, 1), largest=7, saturated=True, out=int8_element(0.2, 4)),
        conv2d_graph(3, 4, 27, 10, (1, 1), largest=7, saturated=True, out=int8_element(0.2, 4)),
        conv2d_graph(6, 5, 5, 17, (5, 1), dilations=(1, 2), strides=(1, 2), batch=2, largest=7, bias=False),
        conv2d_graph(3, 3, 6, 14, padding=((1, 1), (0, 2)), activation=RELU6, per_channel=False, largest=7),
        conv2d_graph(4, 4, 1, 9, (4, 4), padding=((3, 0), (1, 2)), largest=7, activation=RELU, out=RELU_OUT),
        conv2d_graph(4, 5, 64, 7, padding=SAME, largest=7, saturated=True, out=int8_element(0.3, 7)),
        conv2d_graph(
            2, 2, 3, 5, (2, 2), dilations=(1, 1), padding=SAME, largest=7, out=int8_element(2e-5, 0)
        ),
        conv2d_graph(1, 9, 12, 6, (1, 7), strides=(1, 3), padding=(NO_PADDING[0], (2, 4)), largest=7),
    ]


@pytest.fixture
def all_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No layer keeps bytes that could be packed."""
    avoid(monkeypatch, lambda kernel: not is_packed(kernel))


def compiled(graph: Graph, core: str, optimize: str = "balanced", flags: tuple[str, ...] = ()) -> Program:
    loaded = target.load(core)
    return compile_graph(
        graph, replace(loaded, cpu_flags=(*loaded.cpu_flags, *flags)), Options(optimize=optimize)
    )


def check(program: Program, runs: int = 6) -> None:
    assert all("_s4w_" in layer.kernel.name for layer in program.layers)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], runs))
    assert result.exact, result.first_difference


@pytest.mark.usefixtures("all_packed")
@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", CORES)
def test_equals_reference(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    program = compiled(merge([*dense(), *images()]), core, "speed")
    specs = {
        name: [dict(layer.call.function.spec) for layer in program.layers if layer.node.op.name == name]
        for name in ("fully_connected", "conv2d")
    }
    # Every way to compute is tried.
    if core == "cortex-m4":
        ways = {(spec["long"], spec["rest"]) for spec in specs["fully_connected"]}
        assert ways >= {(False, False), (False, True), (True, True)}
        assert {spec["long"] for spec in specs["conv2d"]} == {False, True}
        for each in specs.values():
            assert {spec["requantize"] for spec in each} == {"short", "short_relu", "general"}
    if core == "cortex-m55":
        assert {spec["int4"] for spec in specs["fully_connected"]} == {"joined", "apart"}
        ways = {(spec["int4"], spec["register_vectors"]) for spec in specs["conv2d"]}
        assert ways >= {("joined", 0), ("apart", 0), ("joined", 1), ("joined", 2), ("apart", 2)}
    check(program)


@pytest.mark.usefixtures("all_packed")
def test_host_equals_reference() -> None:
    need_tools("gcc")
    check(compiled(merge([*dense(), *images()]), "host"))


@pytest.mark.usefixtures("all_packed")
@pytest.mark.exhaustive
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m3", "cortex-m0plus"])
def test_without_assembly(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    check(compiled(merge([*dense(), *images()]), core, flags=("-DMF_NO_ASM",)))


@pytest.mark.usefixtures("all_packed")
@pytest.mark.parametrize("core", CORES)
def test_flash_is_half(core: str) -> None:
    graph = merge([fully_connected_graph(256, 60, largest=7), conv2d_graph(4, 4, 48, 32, largest=7)])
    size = sum(array.size for array in graph.constants.values() if array.dtype == np.int8)
    program = compiled(graph, core)
    assert all(is_packed(layer.kernel) for layer in program.layers)
    weights = sum(
        constant.array.nbytes for layer in program.layers for constant in layer.call.constants.values()
    )
    # Half a byte for each weight; bias and requantisation of a channel are 16 bytes.
    assert size // 2 <= weights <= size // 2 + 16 * (60 + 32)


def test_what_fits_is_a_fact_about_values() -> None:
    graph = fully_connected_graph(64, 40, largest=7)
    (weights,) = (value for value in graph.constants if value.name == "weights")
    array = graph.constants[weights]
    program = compiled(graph, "cortex-m4")
    assert program.layers[0].kernel.name == "s8_s4w_fully_connected__dsp"
    larger = array.copy()
    larger[0, 0] = 8
    changed = replace(graph, constants={**graph.constants, weights: larger})
    assert not compiled(changed, "cortex-m4").layers[0].kernel.trades & PACKED


@pytest.mark.slow
def test_weights_with_a_zero_point() -> None:
    need_tools(*CROSS_TOOLS)
    graph = fully_connected_graph(64, 40, largest=7)
    (old,) = (value for value in graph.constants if value.name == "weights")
    quant = old.type.quant
    assert quant is not None
    shifted = Value(old.name, replace(old.type, quant=Quant(quant.scales, (5,))))
    node = replace(graph.nodes[0], inputs=tuple(shifted if v is old else v for v in graph.nodes[0].inputs))
    constants = {shifted if v is old else v: a + 5 if v is old else a for v, a in graph.constants.items()}
    for core in ("cortex-m4", "cortex-m3", "cortex-m55"):
        check(compiled(replace(graph, nodes=(node,), constants=constants), core))


def test_speed_takes_what_is_fastest() -> None:
    graph = fully_connected_graph(256, 64, largest=7)
    assert compiled(graph, "cortex-m4").layers[0].kernel.name == "s8_s4w_fully_connected__dsp"
    assert compiled(graph, "cortex-m4", "speed").layers[0].kernel.name == "s8_fully_connected__dsp_8"


@pytest.mark.parametrize("core", quick(CORES))
def test_the_least_flash_takes_them(core: str) -> None:
    graph = merge([fully_connected_graph(256, 60, largest=7), conv2d_graph(4, 4, 48, 32, largest=7)])
    program = compile_graph(graph, target.load(core), Options(objective="flash=1"))
    assert all(is_packed(layer.kernel) for layer in program.layers)
    assert program.weight_bytes <= 17000


def test_few_weights_for_many_outputs_stay_bytes() -> None:
    graph = merge([conv2d_graph(16, 16, 1, 8, largest=7), fully_connected_graph(256, 60, largest=7)])
    program = compiled(graph, "cortex-m4")
    packed = {layer.node.op.name: is_packed(layer.kernel) for layer in program.layers}
    assert packed == {"conv2d": False, "fully_connected": True}


def is_packed(kernel: Kernel) -> bool:
    return bool(kernel.trades & PACKED)


def graph_matrix(graph: Graph) -> np.ndarray:
    return next(array for value, array in graph.constants.items() if value.name == "weights")


def random_matrix(channels: int, depth: int) -> np.ndarray:
    return np.random.default_rng(channels + depth).integers(-8, 8, (channels, depth)).astype(np.int8)


@pytest.mark.parametrize(("channels", "depth"), [(1, 1), (4, 16), (9, 33), (3, 18)])
def test_words_round_trip(channels: int, depth: int) -> None:
    matrix = random_matrix(channels, depth)
    words = int4.pack_words(matrix)
    assert np.array_equal(int4.unpack_words(words, channels, depth), matrix)
    # Whole runs may be read for every four channels.
    runs = -(-depth // 16) * 8
    assert words.size >= (-(-channels // 4) - 1) * ((depth + 1) // 2) + runs


@pytest.mark.parametrize(("channels", "depth"), [(4, 8), (13, 7), (8, 1)])
def test_sums_of_halves(channels: int, depth: int) -> None:
    """What the kernels for DSP instructions compute, from their words."""
    matrix = random_matrix(channels, depth)
    x = np.random.default_rng(1).integers(-128, 128, depth)
    padded = np.pad(x, (0, -depth % 4))
    pairs = padded[smlad.pair_order(padded.size)]
    halves = int4_dsp.pack(matrix, 1).view(np.uint16).reshape(-1, *pairs.shape)
    masks = np.array([0x000F, 0x00FF, 0x0FFF, 0xFFFF], np.uint16)
    masked = (halves[..., None] & masks).view(np.int16).astype(np.int64)
    sums = (masked * pairs[..., None]).sum(axis=(1, 2))
    parts = np.diff(sums, axis=1, prepend=0) // [1, 16, 256, 4096] - 8 * x.sum() * np.array([1, 1, 1, 0])
    assert np.array_equal(parts.reshape(-1)[:channels], matrix.astype(np.int64) @ x)


def test_halves_in_reading_order() -> None:
    """Two blocks of channels take turns; the last one of an odd number is alone."""
    matrix = random_matrix(12, 8)
    a, b, c = int4_dsp.pack(matrix, 1).reshape(3, 2, 2)
    assert np.array_equal(int4_dsp.pack(matrix, 2), np.concatenate([a[0], b[0], a[1], b[1], *c]))


@pytest.mark.parametrize(("segment", "length", "unroll"), [(9, 3, 3), (27, 5, 1), (27, 8, 2)])
def test_runs_of_nibbles(segment: int, length: int, unroll: int) -> None:
    """What the kernels for words of two pixels take out, iteration by iteration."""
    matrix = random_matrix(3, 27)
    count = length * unroll
    expected = two_pixels_per_word.pack_runs(matrix, segment, length, unsigned=False).reshape(-1, count)
    words = int4_pairs.pack_words(matrix, segment, length, unroll)
    nibbles = int4.split_nibbles(words).reshape(len(expected), -1)[:, :count]
    assert np.array_equal(nibbles, expected & 0xF)
    stored = int4_pairs.pack_bytes(matrix, segment, length, unroll)
    nibbles = np.stack([stored & 15, stored >> 4], axis=-1).reshape(len(expected), -1)[:, :count]
    assert np.array_equal(nibbles.astype(np.int8) - 8, expected)


@pytest.mark.parametrize("lowest", [-8, -7])
def test_bytes_of_two_channels(lowest: int) -> None:
    matrix = np.maximum(random_matrix(6, 20), lowest)
    kind = int4_mve.choose_bytes(matrix)
    assert kind is (int4_mve.Bytes.APART if lowest == -8 else int4_mve.Bytes.JOINED)
    stored = int4_mve.block_bytes(matrix)
    first = (stored << 4) >> 4
    second = (stored - first) >> 4 if kind is int4_mve.Bytes.JOINED else stored >> 4
    expected = mve.block_weights(matrix)
    assert np.array_equal(np.concatenate([first, second], axis=2), expected)


def test_sums_in_parts() -> None:
    assert int4_dsp.parts(np.full((4, 508), -8)) == 0
    assert int4_dsp.parts(np.full((4, 512), -8)) == 2
    assert int4_dsp.parts(np.full((4, 1000), 2)) == 0
    assert int4_dsp.parts(np.zeros((4, 8000))) == 16
