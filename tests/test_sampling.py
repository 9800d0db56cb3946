"""What a run of the tests leaves out, another commit runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests import sampling


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[range]:
    """Numbers of commits; the test sets $MICROFOLD_TURN to each of them."""
    yield range(12 * sampling.SLOW_PARTS)
    monkeypatch.undo()
    sampling.turn.cache_clear()


def _at(turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MICROFOLD_TURN", str(turn))
    sampling.turn.cache_clear()


def _kept(found: list[Any]) -> list[Any]:
    return [each.values[0] for each in found if not each.marks]


@pytest.mark.parametrize(("count", "every", "kept"), [(5, 99, 1), (6, 2, 3), (1, 4, 1), (0, 3, 0)])
def test_values_take_turns(
    count: int, every: int, kept: int, turns: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[int] = set()
    for turn in turns:
        _at(turn, monkeypatch)
        found = _kept(sampling.sampled(range(count), every))
        assert len(found) == kept
        seen.update(found)
    assert seen == set(range(count))


@pytest.mark.parametrize("every", [2, 3, 4])
def test_every_value_of_a_slow_test_meets_its_turn(
    every: int, turns: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[int] = set()
    for turn in turns:
        _at(turn, monkeypatch)
        kept = _kept(sampling.sampled(range(8), every))
        seen.update(n for n in kept if sampling.runs(f"tests/e2e/test_rows.py::test_one[{n}]", {"slow"}))
    assert seen == set(range(8))


def test_slow_tests_take_turns(turns: range, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"tests/e2e/test_models.py::test_{number}" for number in range(100)]
    times = dict.fromkeys(names, 0)
    for turn in turns:
        _at(turn, monkeypatch)
        for name in names:
            times[name] += sampling.runs(name, {"slow"})
    assert {*times.values()} == {len(turns) // sampling.SLOW_PARTS}


def test_some_tests_run_for_every_commit(turns: range, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "tests/e2e/test_models.py::test_one"
    for turn in turns:
        _at(turn, monkeypatch)
        assert sampling.runs(name, set())
        assert sampling.runs(name, {"slow", "always"})
        assert sampling.runs("tests/frontend/test_oracle.py::test_bundled_model[cnn]", {"slow"})


@pytest.mark.parametrize("changed", [False, True])
def test_figures_are_checked_when_they_may_have_changed(
    changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "_are_figures_changed", lambda: changed)
    assert sampling.runs("tests/kernels/test_costs.py::test_one", {"slow", "figures"}) == changed
