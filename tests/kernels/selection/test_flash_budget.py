"""The fastest kernels within a budget of flash."""

from __future__ import annotations

from dataclasses import replace

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.kernels.selection.flash_budget import select_within
from microfold.kernels.selection.model import Model
from microfold.options import Options
from microfold.program import Program
from tests.kernels import graphs
from tests.kernels.choice import layer_of

TARGET = target.load("cortex-m4")
CONV = graphs.conv2d_graph(16, 16, 16, 16, padding=((1, 1), (1, 1)))
WINOGRAD4, WINOGRAD2, FPU, TILE = (
    f"s8_conv2d__dsp_{name}" for name in ("winograd_4x4", "winograd_2x2", "fpu", "tile")
)


def _compiled(**options: object) -> Program:
    return compile_graph(CONV, TARGET, Options(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(("flash", "kernel"), [(1 << 20, WINOGRAD4), (12_000, WINOGRAD2), (4_000, FPU)])
def test_less_flash_means_smaller_kernels(flash: int, kernel: str) -> None:
    program = _compiled(flash=flash)
    assert [layer.kernel.name for layer in program.layers] == [kernel]
    assert program.weight_bytes <= flash


def test_no_budget_is_needed() -> None:
    assert _compiled(optimize="speed").layers[0].kernel.name == WINOGRAD4
    assert _compiled().layers[0].kernel.name == TILE


def test_an_impossible_budget() -> None:
    with pytest.raises(
        InputError, match=r"must fit 100 bytes of flash; the smallest kernels need \d{4} bytes"
    ):
        _compiled(flash=100)


def test_the_cheapest_exchange_comes_first() -> None:
    """Of two equal filters, the one on the smaller image loses less by a slower kernel."""
    large = compile_graph(
        graphs.conv2d_graph(32, 32, 16, 16, padding=((1, 1), (1, 1))), TARGET, Options(optimize="speed")
    )
    programs = (_compiled(optimize="speed"), large)
    both = [layer_of(program.graph) for program in programs]
    one = large.weight_bytes
    choices = select_within(one + 4_000, both, Model(large.graph))
    assert not isinstance(choices, str)
    assert [choice.kernel.name for choice in choices] == [FPU, WINOGRAD4]


def test_what_layers_share_counts_once() -> None:
    """Rows of a layer, which read the same weights, take the flash of one; others do not."""
    program = _compiled(optimize="speed")
    layer, model = layer_of(program.graph), Model(program.graph)
    one = replace(layer, band_of=layer.node)
    choices = select_within(program.weight_bytes, [one, one], model)
    assert not isinstance(choices, int)
    assert [choice.kernel.name for choice in choices] == [WINOGRAD4, WINOGRAD4]
    other = graphs.conv2d_graph(16, 16, 16, 16, padding=((1, 1), (1, 1)))
    apart = [one, layer_of(compile_graph(other, TARGET, Options(optimize="speed")).graph)]
    choices = select_within(program.weight_bytes, apart, model)
    assert not isinstance(choices, int)
    assert [choice.kernel.name for choice in choices] != [WINOGRAD4, WINOGRAD4]
    assert isinstance(select_within(8, [one, one], model), int)
    assert select_within(8, [one, one], model) == select_within(8, [one], model)
