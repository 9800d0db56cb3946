"""int16 depthwise convolutions with DSP instructions and with Helium, on the simulated cores, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.types import DType
from microfold.kernels.depthwise_conv2d.s16_dsp import pack_taps
from microfold.kernels.depthwise_conv2d.s16_mve import channel_lanes, pack_even_odd, pack_lanes
from tests.kernels import graphs
from tests.kernels.choice import prefer
from tests.kernels.cores import check_all
from tests.kernels.portable import as_int16, as_int16_in_32_bits
from tests.kernels.random_networks import merge
from tests.kernels.thumb import measured
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

DSP, MVE = "s16_depthwise_conv2d__dsp_1x4", "s16_depthwise_conv2d__mve_8"
SAME3 = ((1, 1), (1, 1))

GRAPHS: dict[str, Graph] = {
    "3x3": graphs.depthwise_conv2d_graph(7, 6, 16, padding=SAME3),
    "relu, odd": graphs.depthwise_conv2d_graph(6, 5, 13, padding=((0, 1), (1, 0)), activation=graphs.RELU),
    "strides, batch 2": graphs.depthwise_conv2d_graph(
        7, 9, 17, strides=(2, 2), padding=((0, 1), (1, 0)), batch=2, activation=graphs.RELU6
    ),
    "stride 3": graphs.depthwise_conv2d_graph(7, 13, 9, strides=(1, 3), padding=SAME3, bias=False),
    "rows apart": graphs.depthwise_conv2d_graph(9, 8, 9, dilations=(3, 1), padding=((3, 3), (1, 1))),
    "one row": graphs.depthwise_conv2d_graph(1, 17, 11, (1, 9), padding=((0, 0), (4, 4))),
    "multiplier": graphs.depthwise_conv2d_graph(6, 5, 5, (5, 5), multiplier=3, padding=((2, 2), (2, 2))),
    "saturated": graphs.depthwise_conv2d_graph(5, 5, 8, (4, 4), padding=((1, 2), (2, 1)), saturated=True),
    "all padding": graphs.depthwise_conv2d_graph(2, 2, 8, padding=((4, 4), (4, 4)), per_channel=False),
    "10x4": graphs.depthwise_conv2d_graph(19, 6, 9, (10, 4), strides=(2, 2), padding=((4, 5), (1, 1))),
    "one channel, 5x5": graphs.depthwise_conv2d_graph(9, 9, 1, (5, 5), padding=((2, 2), (2, 2))),
    "one channel, 2x2": graphs.depthwise_conv2d_graph(4, 9, 1, (2, 2), strides=(2, 2)),
    "7x1": graphs.depthwise_conv2d_graph(11, 3, 3, (7, 1), padding=((3, 3), (0, 0)), batch=2),
    "three pixels": graphs.depthwise_conv2d_graph(1, 3, 2, (3, 3), padding=((2, 2), (2, 2))),
    "3x7": graphs.depthwise_conv2d_graph(5, 9, 2, (3, 7), padding=((1, 1), (3, 3)), activation=graphs.RELU),
    "2x4, stride 3": graphs.depthwise_conv2d_graph(5, 14, 3, (2, 4), strides=(1, 3)),
    "8x8": graphs.depthwise_conv2d_graph(11, 11, 1, (8, 8), multiplier=2, padding=((3, 4), (3, 4))),
}
DILATED = graphs.depthwise_conv2d_graph(9, 10, 9, dilations=(2, 3), padding=((2, 2), (3, 3)))


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m7", "cortex-m33"]))
def test_dsp_equals_the_reference(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, DSP)
    check_all([as_int16(graph) for graph in GRAPHS.values()], core, {DSP})
    check_all([*as_int16_in_32_bits(GRAPHS).values()], core, {DSP})


@pytest.mark.slow
@pytest.mark.always
def test_mve_equals_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, MVE)
    check_all([as_int16(graph) for graph in (*GRAPHS.values(), DILATED)], "cortex-m55", {MVE})


def test_dilated_rows_are_left_to_others() -> None:
    program = compile_graph(as_int16(DILATED), target.load("cortex-m4"))
    assert program.layers[0].kernel.name == "s16_depthwise_conv2d__c_plane"


def test_vectors_round_once() -> None:
    program = compile_graph(as_int16(GRAPHS["3x3"], DType.INT32), target.load("cortex-m55"))
    assert program.layers[0].kernel.name == DSP


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_cost(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    cases = [
        as_int16(graphs.depthwise_conv2d_graph(size, size, channels, padding=SAME3))
        for channels, size in ((16, 8), (32, 12), (24, 5))
    ]
    for name, estimated, counted in measured(compile_graph(merge(cases), target.load(core))):
        assert name in (DSP, MVE) and abs(estimated / counted - 1) < 0.3, (name, estimated, counted)


def test_pairs_of_taps() -> None:
    taps = np.arange(1, 7, dtype=np.int8).reshape(1, 2, 3)
    # From the first tap on and from the second: (1, 2), (2, 3).
    assert pack_taps(taps, both=True).view("<i2").tolist() == [[[1, 2, 2, 3], [4, 5, 5, 6]]]
    assert pack_taps(taps, both=False).view("<i2").tolist() == [[[1, 2, 3, 0], [4, 5, 6, 0]]]
    assert pack_taps(taps[..., :1], both=True).view("<i2").tolist() == [[[1, 0], [4, 0]]]
    assert pack_taps(taps[..., :2], both=True).view("<i2").tolist() == [[[1, 2], [4, 5]]]


def test_blocks_of_lanes() -> None:
    moved = channel_lanes(11, moved=True)
    assert moved.tolist() == [[*range(8)], [*range(3, 11)]]
    assert channel_lanes(3, moved=False).tolist() == [[0, 1, 2, 2, 2, 2, 2, 2]]
    filters = np.arange(22, dtype=np.int8).reshape(1, 1, 2, 11)
    assert pack_lanes(filters, moved)[1, 0].tolist() == [[*range(3, 11)], [*range(14, 22)]]
    records = np.arange(44, dtype=np.int32).reshape(11, 4)
    assert pack_even_odd(records, moved)[0, 2].tolist() == [[-3, -11, -19, -27], [-7, -15, -23, -31]]
