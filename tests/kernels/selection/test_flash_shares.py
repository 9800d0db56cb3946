"""Flash that saves little time: weights of 16 bits, and functions for few products."""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_file, compile_graph
from microfold.ir.graph import Graph
from microfold.kernels.kernel import Trade
from microfold.kernels.selection import flash_shares
from microfold.options import Options
from microfold.program import Program
from tests.kernels import graphs
from tests.kernels.cores import each_alone
from tests.kernels.random_networks import merge

TARGET = target.load("cortex-m4")
PADDING = ((1, 1), (1, 1))
# A layer with few weights for its outputs, one with many, and a little one with a function of its own.
NETWORK = merge(
    [
        graphs.conv2d_graph(24, 24, 3, 8, padding=PADDING, seed=1),
        graphs.conv2d_graph(6, 6, 48, 64, kernel=(1, 1), seed=2),
        graphs.fully_connected_graph(64, 12, seed=3),
    ]
)

# Loops over 14 and over 18 pairs of inputs.
LOOPS = merge(
    [
        graphs.conv2d_graph(24, 24, 3, 8, padding=PADDING, seed=1),
        graphs.conv2d_graph(10, 10, 36, 30, kernel=(1, 1), seed=2),
    ]
)
# Rows, which may be looked at besides, have shares of their own.
WHOLE = Options(rows="never")


def _compiled(graph: Graph, price: float, monkeypatch: pytest.MonkeyPatch) -> Program:
    """With parts of flash that must be so many times as large as those of time."""
    with monkeypatch.context() as patch:
        patch.setattr(flash_shares, "FLASH_FOR_TIME", price)
        return compile_graph(graph, TARGET, WHOLE)


def _wide(program: Program) -> list[int]:
    return [i for i, la in enumerate(program.layers) if Trade.WIDE_WEIGHTS in la.kernel.trades]


def test_a_limit_of_ram_asks_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    roomy = Options(ram=1 << 20)
    assert _wide(_without(monkeypatch, roomy))
    monkeypatch.setattr(flash_shares, "FLASH_FOR_TIME", 0.0)
    assert not _wide(compile_graph(NETWORK, TARGET, roomy))


def _without(monkeypatch: pytest.MonkeyPatch, options: Options | None = None) -> Program:
    with monkeypatch.context() as patch:
        each_alone(patch)
        return compile_graph(NETWORK, TARGET, options)


def test_the_price_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _without(monkeypatch)
    assert before.estimated_instructions
    programs = [_compiled(NETWORK, price, monkeypatch) for price in (1e9, 3.0, 0.0)]
    times = [p.estimated_instructions or 0 for p in programs]
    assert times == sorted(times) and times[0] <= before.estimated_instructions * (1 + 1e-6)
    sizes = [p.weight_bytes for p in programs]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < sizes[0]
    assert len(_wide(programs[-1])) == 0 < len(_wide(before))
    assert all(p.arena.size <= before.arena.size for p in programs)


def test_time_is_lost_where_flash_is_saved_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = _without(monkeypatch), compile_graph(NETWORK, TARGET)
    assert before.estimated_instructions and after.estimated_instructions
    lost = after.estimated_instructions / before.estimated_instructions - 1
    code = len({la.call.function for la in before.layers}) * 2000
    assert flash_shares.FLASH_FOR_TIME * lost <= 1 - after.weight_bytes / (before.weight_bytes + code)


@pytest.mark.parametrize("what", ["FUNCTIONS", "WEIGHTS"])
def test_all_changes_together_take_little_time(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little the price asks for; there are more to make."""
    lost: list[float] = []
    changed = flash_shares.Shares.changed

    def spied(shares: flash_shares.Shares) -> list[flash_shares.PricedWay]:
        ways = changed(shares)
        before, after = (sum(way.time for way in each) for each in (shares.first, ways))
        lost.append(after / before - 1)
        return ways

    monkeypatch.setattr(flash_shares.Shares, "changed", spied)
    for kind in ("FUNCTIONS", "WEIGHTS"):
        monkeypatch.setattr(flash_shares, f"MOST_TIME_OF_{kind}", 0.0)
    limits = (0.0, 0.001, 0.01, 1.0)
    for limit in limits:
        monkeypatch.setattr(flash_shares, f"MOST_TIME_OF_{what}", limit)
        _compiled(NETWORK, 0.0, monkeypatch)
    assert all(part <= limit for part, limit in zip(lost, limits, strict=True)), lost
    assert lost[0] <= 0.0 < lost[-1]


LATE = target.load("cortex-m7")


def test_loops_are_written_out_where_time_is_worth_the_flash(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    for price in (0.0, 3.0, 1e9):
        with monkeypatch.context() as patch:
            patch.setattr(flash_shares, "FLASH_FOR_TIME", price)
            layers = compile_graph(LOOPS, LATE).layers
        written.append(sum(Trade.WRITTEN_OUT in la.kernel.trades for la in layers))
    assert written == [0, 1, 2]


def test_loops_that_are_written_out_change_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    after = compile_graph(LOOPS, LATE, WHOLE)
    shares: list[flash_shares.Shares] = []

    def spied(made: flash_shares.Shares) -> list[flash_shares.PricedWay]:
        shares.append(made)
        return made.ways

    monkeypatch.setattr(flash_shares.Shares, "written_out", spied)
    before = compile_graph(LOOPS, LATE, WHOLE)
    assert (before.weight_bytes, before.arena.size) == (after.weight_bytes, after.arena.size)
    assert [la.kernel.name for la in before.layers] == [la.kernel.name for la in after.layers]
    monkeypatch.undo()
    both = [*shares[-1].ways], shares[-1].written_out()
    small, large = map(flash_shares.estimated_flash, both)
    slow, fast = (sum(way.time for way in ways) for ways in both)
    assert 0 < (large - small) / small < flash_shares.FLASH_FOR_TIME * (slow - fast) / slow


def test_few_products_have_short_code() -> None:
    (kernel,) = [la.kernel.name for la in compile_graph(NETWORK, TARGET).layers if "fully" in la.kernel.name]
    assert kernel == "s8_fully_connected__dsp_2"
    alone = compile_graph(graphs.fully_connected_graph(64, 12), TARGET)
    assert [la.kernel.name for la in alone.layers] == ["s8_fully_connected__dsp_8"]


def test_only_balanced_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in (Options(optimize="speed"), Options(flash=1 << 20)):
        before = [la.kernel.name for la in _without(monkeypatch, options).layers]
        assert [la.kernel.name for la in compile_graph(NETWORK, TARGET, options).layers] == before


def test_ties_are_broken_by_flash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of some share takes the function of another one where its own is faster by next to nothing."""
    path = Path(__file__).parents[3] / "examples/digits/digits.tflite"

    def functions() -> int:
        layers = compile_file(path, target.load("cortex-m55")).layers
        return len({layer.call.function for layer in layers if layer.node.op.name == "depthwise_conv2d"})

    assert functions() == 1
    monkeypatch.setattr(flash_shares, "TIE_FLASH", 1.0)
    assert functions() == 2
