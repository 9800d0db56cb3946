"""Work over lanes, in processes that may die."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from microfold.workers.dispatch import Dispatcher
from microfold.workers.executor import LocalExecutor
from tests.tune.stubs import deadly, failing, slowly


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
        assert found[13].problem == "the process that did it has died, 3 times"

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
