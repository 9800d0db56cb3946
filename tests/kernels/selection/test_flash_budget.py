"""Kernels within a limit of flash."""

from __future__ import annotations

import re

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.kernels.selection.objective import SelectionFigures
from microfold.options import Options
from tests.kernels import graphs
from tests.lowering.figures import figures_of_build

TARGET = target.load("cortex-m4")
CONV = graphs.conv2d_graph(16, 16, 16, 16, padding=((1, 1), (1, 1)))


def _figures(flash: int | None, optimize: str = "speed") -> SelectionFigures:
    return figures_of_build(CONV, TARGET, Options(optimize=optimize, flash=flash))


def test_less_flash_takes_more_time() -> None:
    """From no limit down to the least: constants and code fit, and no smaller choice is faster."""
    found = [_figures(None)]
    refused = ""
    while not refused:
        try:
            found.append(_figures(found[-1].flash - 1))
        except InputError as refusal:
            refused = str(refusal)
    times, sizes = [each.cycles for each in found], [each.flash for each in found]
    assert len(found) > 3 and times == sorted(times) and sizes == sorted(sizes, reverse=True)
    assert f"the smallest kernels need {sizes[-1]} by estimate, which is proved" in refused


def test_the_least_that_a_refusal_names_does() -> None:
    with pytest.raises(InputError, match="constants and code must fit 100 bytes of flash") as refused:
        compile_graph(CONV, TARGET, Options(flash=100))
    (least,) = re.findall(r"allow (\d+)", str(refused.value))
    assert _figures(int(least)).flash == int(least)


def test_below_a_limit_flash_has_no_price() -> None:
    assert _figures(1 << 20, "balanced").cycles <= _figures(None, "balanced").cycles
