"""Fully connected layers of several rows by convolution kernels."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.kernels.fully_connected.portable import unit_multipliers
from microfold.kernels.fully_connected.via_conv2d import convolution_layer
from microfold.kernels.packing import product_sum
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.choice import avoid, layer_of
from tests.kernels.portable import as_int16
from tests.kernels.random_networks import merge
from tests.kernels.thumb import measured
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

VARIANTS = {
    "cortex-m0plus": "__thumb1_",
    "cortex-m3": "__thumb2_",
    "cortex-m4": "__dsp_",
    "cortex-m55": "__mve_",
}
CASES = (
    graphs.fully_connected_graph(33, 17, batch=7, activation=graphs.RELU6),
    graphs.fully_connected_graph(8, 3, batch=2, per_channel=True, bias=False),
    graphs.fully_connected_graph(5, 1, batch=9, saturated=True),
    graphs.fully_connected_graph(64, 6, batch=4, per_channel=True, saturated=True),
)


@pytest.mark.parametrize("per_channel", [False, True])
def test_multipliers_are_those_of_the_layer(per_channel: bool) -> None:
    for seed in range(20):
        graph = graphs.fully_connected_graph(9, 4, batch=3, per_channel=per_channel, seed=seed)
        layer = layer_of(graph, "host")
        for mine, theirs in zip(
            unit_multipliers(layer), product_sum.channel_multipliers(convolution_layer(layer)), strict=True
        ):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", sampled(VARIANTS, 3))
def test_equals_the_reference(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    avoid(monkeypatch, lambda kernel: VARIANTS[core] not in kernel.name or "_rows" not in kernel.name)
    cases = list(CASES)
    if "thumb" not in VARIANTS[core]:
        cases.append(as_int16(CASES[0]))
    program = compile_graph(merge(cases), target.load(core))
    assert all(VARIANTS[core] in layer.kernel.name for layer in program.layers)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 6))
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", sampled(VARIANTS, 2))
def test_many_rows_are_computed_in_this_way(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    graph = graphs.fully_connected_graph(64, 64, batch=16)
    ((name, estimated, counted),) = measured(compile_graph(graph, target.load(core)))
    assert VARIANTS[core] in name
    assert name.endswith("_rows")
    assert abs(estimated / counted - 1) < 0.1, (estimated, counted)
