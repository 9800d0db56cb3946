"""int16 fully connected layers for DSP instructions and Helium, on the simulated cores, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.ir.graph import Graph
from microfold.kernels.fully_connected.s16_dsp import pack_unit_blocks
from tests.kernels import graphs
from tests.kernels.choice import prefer
from tests.kernels.cores import check_choice
from tests.kernels.portable import as_int16, as_int16_in_32_bits
from tests.needs import CROSS_TOOLS

DSP = "s16_fully_connected__dsp_4"
# Those behind M4 have another order of the same instructions, see `late_loads`.
DSP_CORES = ("cortex-m4", "cortex-m7", "cortex-m33")
KERNELS = dict.fromkeys(DSP_CORES, DSP) | {"cortex-m55": "s16_fully_connected__mve_4"}

GRAPHS: dict[str, Graph] = {
    "64 to 12": graphs.fully_connected_graph(64, 12, per_channel=True, activation=graphs.RELU),
    "odd, batch 3": graphs.fully_connected_graph(37, 17, batch=3, activation=graphs.RELU6, bias=False),
    "20 to 4": graphs.fully_connected_graph(20, 4, batch=2),
    "1 input": graphs.fully_connected_graph(1, 5),
    "saturated, sums of 64 bits": graphs.fully_connected_graph(1301, 6, saturated=True),
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
@pytest.mark.parametrize("core", DSP_CORES)
def test_speed_keeps_int16_weights(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, DSP)
    cases = {name: as_int16(GRAPHS[name]) for name in ("odd, batch 3", "saturated, sums of 64 bits")}
    check_choice(cases, core, DSP, "speed", packing="int16")


def test_units_are_stored_in_reading_order() -> None:
    packed = pack_unit_blocks(np.arange(1, 11, dtype=np.int8).reshape(5, 2), "int8")
    assert packed.view("i1").reshape(2, 8).tolist() == [[1, 3, 2, 4, 5, 7, 6, 8], [9, 0, 10, 0, 0, 0, 0, 0]]
