"""Work over lanes, in processes that may die."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from microfold.workers.dispatch import ATTEMPTS, STRIKES, Dispatcher, FinishedTask
from microfold.workers.executor import LocalExecutor
from tests.tune.stubs import InlineExecutor, deadly, failing, slowly


class Lanes:
    """Lanes of which some fail, or with some tasks.

    Args:
        dead: lanes, with how many tasks they still do.
        poison: tasks that no lane does.
        glitches: how many of the first calls fail.
    """

    def __init__(self, lanes: str, dead: dict[str, int] | None = None, poison: str = "", glitches: int = 0):
        self.dead = dead or {}
        self.poison = poison
        self.glitches = glitches
        self.calls: list[str] = []
        self.work: Dispatcher[str, str] = Dispatcher(
            InlineExecutor(), self.do, lanes, lambda result: result if "fails" in result else ""
        )

    def do(self, task: str, lane: str) -> str:
        self.calls.append(task + lane)
        done = sum(call[1] == lane for call in self.calls) - 1
        if task in self.poison or len(self.calls) <= self.glitches or done >= self.dead.get(lane, 99):
            return f"{lane} fails"
        return "done"

    def results(self, tasks: str) -> dict[str, FinishedTask[str, str]]:
        self.work.add(tasks)
        return {done.task: done for done in self.work.results()}


def test_what_fails_once_is_tried_again_where_there_is_no_other_lane() -> None:
    lanes = Lanes("A", glitches=2)
    found = lanes.results("pqr")
    assert {done.result for done in found.values()} == {"done"} and len(found) == 3
    assert (lanes.work.lost, lanes.work.left) == ({}, 0)


@pytest.mark.parametrize("names", ["A", "AB", "ABCD"])
def test_what_fails_in_every_lane_is_given_up_and_no_lane_is(names: str) -> None:
    """Also where several such pieces come one after the other."""
    lanes = Lanes(names, poison="bcdef")
    found = lanes.results("abcdefgh")
    assert "".join(sorted(task for task, done in found.items() if done.lanes_failed)) == "bcdef"
    assert lanes.work.lost == {}
    assert {call[1] for call in lanes.calls if call[0] == "b"} == set(names)
    times = max(ATTEMPTS, len(names))
    assert found["b"].problem.endswith(f"fails, {times} times")


def test_a_lane_that_fails_with_everything_is_left_out() -> None:
    lanes = Lanes("ABC", dead={"B": 1})
    found = lanes.results("abcdefghijklmnop")
    assert {done.result for done in found.values()} == {"done"} and len(found) == 16
    assert lanes.work.lost == {"B": "B fails"}
    assert sum(call[1] == "B" for call in lanes.calls) == 1 + STRIKES + 1  # the last one is known to be good


def test_a_lane_that_fails_at_the_end_is_checked() -> None:
    lanes = Lanes("AB", dead={"B": 0})
    assert {done.result for done in lanes.results("ab").values()} == {"done"}
    assert lanes.work.lost == {"B": "B fails"}
    once = Lanes("AB", glitches=1)
    assert {done.result for done in once.results("ab").values()} == {"done"}
    assert once.work.lost == {}


def test_without_a_lane_work_is_left() -> None:
    for done in (0, 2):
        lanes = Lanes("A", dead={"A": done})
        assert len(lanes.results("abcdef")) == done
        assert lanes.work.lost == {"A": "A fails"}
        assert lanes.work.left == 6 - done


@pytest.mark.slow
def test_processes_do_the_work_and_their_deaths_are_repeated(tmp_path: Path) -> None:
    executor = LocalExecutor(2)
    try:
        work = Dispatcher(executor, partial(slowly, 0.0), ["a", "b"])
        work.add(range(6))
        assert sorted(done.result[0] for done in work.results() if done.result) == [0, 1, 4, 9, 16, 25]

        dying = Dispatcher(executor, partial(deadly, tmp_path), ["a", "b"])
        dying.add([1, 13])
        found = {done.task: done for done in dying.results()}
        assert found[1].result == 1
        assert found[13].result is None
        assert found[13].problem == "the worker process has died, 3 times"

        wrong = Dispatcher(executor, failing, ["a"])
        wrong.add([7])
        (done,) = wrong.results()
        assert done.problem == "ValueError: task 7 in a"
    finally:
        executor.close()


@pytest.mark.slow
def test_closing_ends_what_runs() -> None:
    executor = LocalExecutor(1)
    future = executor.submit("a", slowly, 60.0, 1, "a")
    while not executor._workers:  # type: ignore[reportPrivateUsage]
        os.sched_yield()
    executor.close()
    assert future.exception(timeout=30) is not None
