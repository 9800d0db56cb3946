"""Runs of calls that together need more arena than each of them alone."""

from __future__ import annotations

from microfold.plan.windows import LONGEST, CallRange, runs_above


def test_all_shortest_runs_are_found() -> None:
    """Calls 3 to 5 and 7 to 9 need too much together, and so does everything that contains them."""
    wrong = [range(3, 6), range(7, 10)]

    def is_above(first: int, last: int) -> bool:
        return any(first <= each[0] and each[-1] <= last for each in wrong)

    assert runs_above(12, is_above) == [CallRange(3, 5), CallRange(7, 9)]


def test_long_runs_are_not_looked_for() -> None:
    """The time for their bounds would grow exponentially."""
    asked: list[int] = []

    def is_above(first: int, last: int) -> bool:
        asked.append(last - first + 1)
        return last - first + 1 > LONGEST

    assert runs_above(100, is_above) == []
    assert max(asked) == LONGEST
