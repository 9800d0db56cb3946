"""Pieces of work over lanes: what is lost is repeated, and a lane that fails is left out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from microfold.workers.executor import Executor, WorkerLost

# How often a piece of work is begun: what kills a worker so often is given up.
ATTEMPTS = 3

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Done(Generic[_Task, _Result]):
    """A piece of work that has come to an end.

    Attributes:
        result: None if it was given up.
        problem: why it was given up.
    """

    task: _Task
    result: _Result | None
    problem: str = ""


class Dispatcher(Generic[_Task, _Result]):
    """Hands out work.

    Args:
        function: called with a task and the name of a lane, in a worker.
        lanes: their names, in each of which there is one piece of work at a time.
        failed: why a result says that its lane cannot do anything, or an empty text.
    Attributes:
        lost: the lanes that have failed, with the reasons.
    """

    def __init__(
        self,
        executor: Executor,
        function: Callable[[_Task, str], _Result],
        lanes: Sequence[str],
        failed: Callable[[_Result], str] = lambda _: "",
    ):
        self._executor = executor
        self._function = function
        self._idle = deque(lanes)
        self._failed = failed
        self._queue: deque[tuple[_Task, int]] = deque()
        self._running: dict[Future[Any], tuple[_Task, int, str]] = {}
        self.lost: dict[str, str] = {}

    def add(self, tasks: Iterable[_Task]) -> None:
        """Work to be done, also while `results` gives some."""
        self._queue.extend((task, 1) for task in tasks)

    def results(self) -> Generator[Done[_Task, _Result]]:
        """Whatever is done, in the order in which it gets done.

        It ends when there is no work, or no lane is left to do it: then `left` tells how much there is.
        """
        while True:
            while self._queue and self._idle:
                (task, attempt), lane = self._queue.popleft(), self._idle.popleft()
                future = self._executor.submit(lane, self._function, task, lane)
                self._running[future] = task, attempt, lane
            if not self._running:
                return
            finished, _ = wait(self._running, return_when=FIRST_COMPLETED)
            for future in finished:
                done = self._finish(future)
                if done is not None:
                    yield done

    @property
    def left(self) -> int:
        """Pieces of work that nobody has begun."""
        return len(self._queue)

    def _finish(self, future: Future[Any]) -> Done[_Task, _Result] | None:
        task, attempt, lane = self._running.pop(future)
        error = future.exception()
        if error is None:
            result: _Result = future.result()
            reason = self._failed(result)
            if reason:
                self.lost[lane] = reason
                self._queue.appendleft((task, attempt))
                return None
            self._idle.append(lane)
            return Done(task, result)
        self._idle.append(lane)
        if isinstance(error, WorkerLost) and attempt < ATTEMPTS:
            self._queue.append((task, attempt + 1))
            return None
        again = f", {attempt} times" if attempt > 1 else ""
        return Done(task, None, f"{error}{again}")
