"""Dispatcher of tasks to lanes. It retries failed tasks, and excludes lanes that do not work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec import Struct

from microfold.workers.executor import Executor, ExecutorLost, WorkerLost

# Maximum number of attempts per task. A task that kills so many workers is given up.
ATTEMPTS = 3
# Different tasks that fail in a row before a lane is checked with a task that has already succeeded, and
# before it is excluded if no task has succeeded yet.
STRIKES = 2
STRIKES_UNCHECKED = 3

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class FinishedTask(Struct, Generic[_Task, _Result], frozen=True):
    """Finished task.

    Attributes:
        result: result of the task; None if it was given up.
        problem: reason why the task was given up.
        lanes_failed: whether it was given up because all lanes failed with it.
        killed: whether it was given up because it killed a worker in every attempt.
    """

    task: _Task
    result: _Result | None
    problem: str = ""
    lanes_failed: bool = False
    killed: bool = False


@dataclass(eq=False)
class _Piece(Generic[_Task]):
    """Task that is waiting or running.

    Attributes:
        attempts: number of failed attempts.
        failed_in: lanes that have failed with the task.
        done: whether some lane has completed the task.
        check: whether the task has already succeeded, and now only checks the lane.
    """

    task: _Task
    attempts: int = 0
    failed_in: set[str] = field(default_factory=set[str])
    done: bool = False
    check: bool = False


class Dispatcher(Generic[_Task, _Result]):
    """Dispatcher of tasks to lanes.

    If a task fails in a lane, either of them can be the cause. Therefore the task is retried in other lanes,
    or in the same lane if it is the only one, and given up if all lanes fail with it. A lane that fails with
    several tasks in a row, or with its last task, is checked with a task that has already succeeded. If it
    fails again, it is excluded.

    Args:
        function: called in a worker, with a task and the name of a lane.
        lanes: names of the lanes; each runs one task at a time.
        failed: returns the reason why a result shows that its lane has failed, or an empty text.
        works: returns whether any other result shows that its lane works.
    Attributes:
        lost: reason for each excluded lane.
    """

    def __init__(
        self,
        executor: Executor,
        function: Callable[[_Task, str], _Result],
        lanes: Sequence[str],
        failed: Callable[[_Result], str] = lambda _: "",
        works: Callable[[_Result], bool] = lambda _: True,
    ):
        self._executor = executor
        self._function = function
        self._idle = deque(lanes)
        self._failed = failed
        self._works = works
        self._queue: deque[_Piece[_Task]] = deque()
        self._running: dict[Future[Any], tuple[_Piece[_Task], str]] = {}
        # Tasks that have failed in each lane since its last success.
        self._strikes: dict[str, set[_Piece[_Task]]] = {lane: set() for lane in lanes}
        self._known_good: _Task | None = None
        self.lost: dict[str, str] = {}

    def add(self, tasks: Iterable[_Task]) -> None:
        """Add tasks. They can also be added while `results` is running."""
        self._queue.extend(_Piece(task) for task in tasks)

    def results(self) -> Generator[FinishedTask[_Task, _Result]]:
        """Yield finished tasks, in the order of completion.

        The generator ends when no tasks are left, or no lanes. In the latter case `left` is not 0.

        Raises:
            ExecutorLost: the executor cannot run any tasks.
        """
        while True:
            for _ in range(len(self._idle)):
                lane = self._idle.popleft()
                piece = self._next(lane)
                if piece is None:
                    self._idle.append(lane)
                else:
                    self._begin(piece, lane)
            if not self._running:
                self._check_suspects()
            if not self._running:
                return
            finished, _ = wait(self._running, return_when=FIRST_COMPLETED)
            for future in [each for each in self._running if each in finished]:
                done = self._finish(future)
                if done is not None:
                    yield done

    @property
    def left(self) -> int:
        """Number of waiting tasks."""
        return len(self._queue)

    @property
    def _lanes(self) -> set[str]:
        return self._strikes.keys() - self.lost.keys()

    def _next(self, lane: str) -> _Piece[_Task] | None:
        """Return the first task for a lane. A task that has failed here waits for the other lanes."""
        for piece in self._queue:
            if lane not in piece.failed_in or self._lanes <= piece.failed_in:
                self._queue.remove(piece)
                return piece
        return None

    def _check_suspects(self) -> None:
        """Check the lanes whose failed tasks other lanes have completed, when no tasks are left."""
        for lane in list(self._idle):
            if self._known_good is not None and any(piece.done for piece in self._strikes[lane]):
                self._idle.remove(lane)
                self._begin(_Piece(self._known_good, check=True), lane)

    def _begin(self, piece: _Piece[_Task], lane: str) -> None:
        future = self._executor.submit(lane, self._function, piece.task, lane)
        self._running[future] = piece, lane

    def _finish(self, future: Future[Any]) -> FinishedTask[_Task, _Result] | None:
        piece, lane = self._running.pop(future)
        error = future.exception()
        if isinstance(error, ExecutorLost):
            raise error
        if error is not None:
            self._idle.append(lane)
            if piece.check:
                self._strikes[lane].clear()
                return None
            piece.attempts += 1
            if isinstance(error, WorkerLost) and piece.attempts < ATTEMPTS:
                self._queue.append(piece)
                return None
            return _given_up(piece, str(error), killed=isinstance(error, WorkerLost))
        result: _Result = future.result()
        reason = self._failed(result)
        if reason:
            return self._strike(piece, lane, reason)
        self._idle.append(lane)
        if self._works(result):
            self._strikes[lane].clear()
            self._known_good = piece.task
            piece.done = True
        return None if piece.check else FinishedTask(piece.task, result)

    def _strike(self, piece: _Piece[_Task], lane: str, reason: str) -> FinishedTask[_Task, _Result] | None:
        strikes = self._strikes[lane]
        strikes.add(piece)
        known_good = self._known_good
        if piece.check or (known_good is None and len(strikes) >= STRIKES_UNCHECKED):
            self.lost[lane] = reason
        elif known_good is not None and len(strikes) >= STRIKES:
            self._begin(_Piece(known_good, check=True), lane)
        else:
            self._idle.append(lane)
        if piece.check:
            return None
        piece.attempts += 1
        piece.failed_in.add(lane)
        if piece.attempts < ATTEMPTS or not self._lanes <= piece.failed_in:
            self._queue.append(piece)
            return None
        return _given_up(piece, reason, lanes_failed=True)


def _given_up(
    piece: _Piece[Any], problem: str, *, lanes_failed: bool = False, killed: bool = False
) -> FinishedTask[Any, Any]:
    again = f", {piece.attempts} times" if piece.attempts > 1 else ""
    return FinishedTask(piece.task, None, f"{problem}{again}", lanes_failed, killed)
