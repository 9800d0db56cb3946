"""Pieces of work over lanes: what is lost or fails is repeated, and a lane that cannot do any is left out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from microfold.support.frozen import frozen
from microfold.workers.executor import Executor, ExecutorLost, WorkerLost

# How often a piece of work is begun: what kills a worker so often is given up.
ATTEMPTS = 3
# A lane in which so many different pieces of work fail, one after the other, is checked with one that was
# done already; where none was, it is left out after so many.
STRIKES = 2
STRIKES_UNCHECKED = 3

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


@frozen
class Done(Generic[_Task, _Result]):
    """A piece of work that has come to an end.

    Attributes:
        result: None if it was given up.
        problem: why it was given up.
        lanes_failed: it was because the lanes failed with it, all that there are.
        killed: it was because it killed workers, as many as there are attempts.
    """

    task: _Task
    result: _Result | None
    problem: str = ""
    lanes_failed: bool = False
    killed: bool = False


@dataclass(eq=False)
class _Piece(Generic[_Task]):
    """A piece of work on its way.

    Attributes:
        attempts: how often it was begun in vain.
        failed_in: lanes that have failed with it.
        done: some lane has done it.
        check: it was done before: whether the lane can do anything is what counts.
    """

    task: _Task
    attempts: int = 0
    failed_in: set[str] = field(default_factory=set[str])
    done: bool = False
    check: bool = False


class Dispatcher(Generic[_Task, _Result]):
    """Hands out work.

    Whether a lane or a piece of work is at fault where one fails with the other, others tell: the work is
    tried in other lanes, or again if there are none, and given up where all fail with it. A lane that fails
    with several pieces in a row, or with its last one, gets one that was done already, and is left out if it
    fails with that, too.

    Args:
        function: called with a task and the name of a lane, in a worker.
        lanes: their names, in each of which there is one piece of work at a time.
        failed: why a result says that its lane has failed, or an empty text.
        works: whether a result that is none of those shows that its lane works.
    Attributes:
        lost: the lanes that are left out, with the reasons.
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
        # Of each lane what has failed there since something was done.
        self._strikes: dict[str, set[_Piece[_Task]]] = {lane: set() for lane in lanes}
        self._known_good: _Task | None = None
        self.lost: dict[str, str] = {}

    def add(self, tasks: Iterable[_Task]) -> None:
        """Work to be done, also while `results` gives some."""
        self._queue.extend(_Piece(task) for task in tasks)

    def results(self) -> Generator[Done[_Task, _Result]]:
        """Whatever is done, in the order in which it gets done.

        It ends when there is no work, or no lane is left to do it: then `left` tells how much there is.

        Raises:
            ExecutorLost: nothing can be done any more.
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
        """Pieces of work that are not done."""
        return len(self._queue)

    @property
    def _lanes(self) -> set[str]:
        """Those that are not left out."""
        return self._strikes.keys() - self.lost.keys()

    def _next(self, lane: str) -> _Piece[_Task] | None:
        """The first piece of work that a lane may do: not what only others have not failed with yet."""
        for piece in self._queue:
            if lane not in piece.failed_in or self._lanes <= piece.failed_in:
                self._queue.remove(piece)
                return piece
        return None

    def _check_suspects(self) -> None:
        """At the end: lanes whose last piece of work another one has done."""
        for lane in list(self._idle):
            if self._known_good is not None and any(piece.done for piece in self._strikes[lane]):
                self._idle.remove(lane)
                self._begin(_Piece(self._known_good, check=True), lane)

    def _begin(self, piece: _Piece[_Task], lane: str) -> None:
        future = self._executor.submit(lane, self._function, piece.task, lane)
        self._running[future] = piece, lane

    def _finish(self, future: Future[Any]) -> Done[_Task, _Result] | None:
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
        return None if piece.check else Done(piece.task, result)

    def _strike(self, piece: _Piece[_Task], lane: str, reason: str) -> Done[_Task, _Result] | None:
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
) -> Done[Any, Any]:
    again = f", {piece.attempts} times" if piece.attempts > 1 else ""
    return Done(piece.task, None, f"{problem}{again}", lanes_failed, killed)
