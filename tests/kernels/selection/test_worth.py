"""What a kernel gives up, and whether that is worth it: one rule for each trade."""

from __future__ import annotations

import pytest

from microfold.ir.graph import Graph
from microfold.kernels.kernel import Trade
from microfold.kernels.selection import worth
from microfold.ops.elementwise.add import Add
from microfold.options import OPTIMIZE
from tests.kernels.choice import candidates_of
from tests.kernels.graphs import (
    conv2d_graph,
    int8_element,
    int8_input,
    one_node_graph,
)

SAME = ((1, 1), (1, 1))


def _reason(graph: Graph, kernel: str, level: str, core: str = "cortex-m4") -> str | None:
    """Why not, in the best variant; None if it fits."""
    (found,) = (c for c in candidates_of(graph, core, level) if c.kernel.name == kernel)
    return found.reason


def test_every_trade_has_a_rule() -> None:
    assert set(worth._RULES) == set(Trade)


@pytest.mark.parametrize(
    ("kernel", "levels"),
    [
        ("s8_conv2d__dsp_compact", ["size"]),
        ("s8_conv2d__dsp_winograd_2x2", ["speed"]),
        # It has all of the model's products.
        ("s8_conv2d__dsp_fpu", ["balanced", "speed"]),
        ("s8_conv2d__dsp_4x2", ["size", "balanced", "speed"]),
    ],
)
def test_levels(kernel: str, levels: list[str]) -> None:
    graph = conv2d_graph(16, 16, 16, 16, padding=SAME)
    assert [level for level in OPTIMIZE if _reason(graph, kernel, level) is None] == levels


@pytest.mark.parametrize(("columns", "reason"), [(29, "its code needs 3000 outputs to pay"), (30, None)])
def test_long_code_pays_for_many_outputs(columns: int, reason: str | None) -> None:
    graph = conv2d_graph(10, columns, 4, 10, padding=SAME)
    assert _reason(graph, "s8_conv2d__dsp_fpu", "speed") == reason


@pytest.mark.parametrize(("pixels", "fits"), [(5, False), (8, True)])
def test_inputs_in_the_scratch_take_less_than_input_and_output(pixels: int, fits: bool) -> None:
    graph = conv2d_graph(pixels, pixels, 128, 32, padding=SAME)
    reason = _reason(graph, "s8_conv2d__thumb2_4x1", "speed", "cortex-m3")
    assert fits == (reason is None)
    assert fits or str(reason).endswith("bytes of scratch, more than input and output")


@pytest.mark.parametrize(
    ("pixels", "reason"),
    [(5, "its tiles would take 8896 bytes of scratch, over 8192"), (7, None)],
)
def test_tiles_are_not_much_larger_than_the_image(pixels: int, reason: str | None) -> None:
    graph = conv2d_graph(pixels, pixels, 64, 8, padding=SAME)
    assert _reason(graph, "s8_conv2d__dsp_winograd_2x2", "speed") == reason


@pytest.mark.parametrize(("size", "levels"), [(255, ["speed"]), (256, ["balanced", "speed"])])
def test_a_table_pays_for_many_elements(size: int, levels: list[str]) -> None:
    operands = [
        int8_input(name, (1, size), scale, 3) for name, scale in zip("ab", (0.07, 0.043), strict=True)
    ]
    graph = one_node_graph(Add(int8_element(0.11, -11)), operands, {})
    table = "s8_add__dsp_table"
    assert [level for level in OPTIMIZE if _reason(graph, table, level) is None] == levels


def test_wide_weights_take_flash_that_the_model_has_not() -> None:
    """An eighth of all int8 constants is spent on them; those of the only layer are more.

    On Cortex-M4 four channels at a time are faster with weights in bytes.
    """
    graph = conv2d_graph(16, 16, 16, 16, (1, 1))
    wide = {
        level: Trade.WIDE_WEIGHTS in c.kernel.trades
        for level in OPTIMIZE
        for c in candidates_of(graph, "cortex-m7", level)
        if c.kernel.name == "s8_conv2d__dsp_4x2"
    }
    assert wide == {"size": False, "balanced": False, "speed": True}
