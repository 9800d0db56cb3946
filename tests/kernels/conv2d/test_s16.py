"""int16 convolutions for cores with DSP instructions and with Helium, on the simulated cores, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.ir.graph import Graph
from microfold.kernels.conv2d.s16_dsp import pack_channel_pairs, pad_segments
from tests.kernels import graphs
from tests.kernels.choice import prefer
from tests.kernels.cores import check_choice
from tests.kernels.portable import as_int16, as_int16_in_32_bits
from tests.needs import CROSS_TOOLS

SAME3 = ((1, 1), (1, 1))
DSP = "s16_conv2d__dsp_4x2"
# Cores with another order of the same instructions, see `late_loads`.
LATE_CORES = ("cortex-m7", "cortex-m33")
KERNELS = dict.fromkeys(("cortex-m4", *LATE_CORES), DSP) | {"cortex-m55": "s16_conv2d__mve_1x4"}

GRAPHS: dict[str, Graph] = {
    "3x3, relu": graphs.conv2d_graph(6, 7, 4, 8, padding=SAME3, activation=graphs.RELU),
    "odd channels, strides, batch 2": graphs.conv2d_graph(
        6, 5, 3, 5, padding=((0, 1), (1, 0)), strides=(2, 1), batch=2, activation=graphs.RELU6
    ),
    "one channel, 10x4": graphs.conv2d_graph(19, 6, 1, 6, (10, 4), strides=(2, 2), padding=((4, 5), (1, 1))),
    "dilated, no bias": graphs.conv2d_graph(
        9, 9, 3, 4, dilations=(3, 2), padding=((3, 3), (2, 2)), bias=False
    ),
    "padding beyond the window": graphs.conv2d_graph(2, 2, 2, 3, padding=((4, 4), (4, 4))),
    "1x1, odd": graphs.conv2d_graph(3, 3, 7, 5, (1, 1), batch=3, per_channel=False),
    "one channel": graphs.conv2d_graph(3, 3, 9, 1, (1, 1)),
    "three pixels": graphs.conv2d_graph(1, 3, 32, 4, (1, 1), activation=graphs.RELU),
    "saturated, sums of 64 bits": graphs.conv2d_graph(4, 4, 64, 3, padding=SAME3, saturated=True),
}


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", KERNELS)
def test_equals_reference(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, KERNELS[core])
    cases = {name: as_int16(graph) for name, graph in GRAPHS.items()}
    check_choice(cases | as_int16_in_32_bits(GRAPHS), core, KERNELS[core])


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", ["cortex-m4", *LATE_CORES])
def test_speed_keeps_int16_weights(core: str) -> None:
    cases = {name: as_int16(GRAPHS[name]) for name in ("3x3, relu", "saturated, sums of 64 bits")}
    check_choice(cases, core, DSP, "speed", packing="int16")


def test_packing_of_two_channels() -> None:
    matrix = np.arange(1, 13, dtype=np.int8).reshape(3, 4)
    packed = pack_channel_pairs(matrix, "int8")
    assert packed.shape == (2, 2, 1)
    assert packed.view("i1").reshape(2, 2, 4).tolist() == [
        [[1, 5, 2, 6], [3, 7, 4, 8]],
        [[9, 0, 10, 0], [11, 0, 12, 0]],
    ]
    words = pack_channel_pairs(matrix, "int16").view("<i2").reshape(2, 2, 4)
    assert words[0].tolist() == [[1, 2, 5, 6], [3, 4, 7, 8]]


def test_odd_segments_end_in_a_zero() -> None:
    matrix = np.arange(1, 7, dtype=np.int8).reshape(1, 6)
    assert pad_segments(matrix, 3).tolist() == [[1, 2, 3, 0, 4, 5, 6, 0]]
    assert pad_segments(matrix, 2).tolist() == matrix.tolist()
