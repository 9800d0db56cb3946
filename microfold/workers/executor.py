"""Where work is done: in processes of this machine, or by the workers of a Dask scheduler."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, Protocol

from microfold.errors import InputError, ToolError
from microfold.support.signals import raise_on_signals

# A worker that is told to end gets so many seconds to clean up.
_SECONDS = 5.0
_CONNECT_SECONDS = 20


class WorkerLost(Exception):
    """The worker that did something is gone; the work may be repeated."""


class Executor(Protocol):
    """Does work in lanes: one piece at a time in each."""

    @property
    def lanes(self) -> int:
        """How many there may be at once."""
        ...

    def submit(self, lane: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Begins a piece of work; `WorkerLost` is the future's exception if it cannot be finished."""
        ...

    def close(self) -> None:
        """Gives up what is not done."""
        ...


class LocalExecutor:
    """A process for each lane, started when first used, and again after it has died.

    Args:
        workers: how many; 0: as many as there are cores.
    """

    def __init__(self, workers: int = 0):
        self.lanes = workers or os.cpu_count() or 1
        self._workers: dict[str, _Worker] = {}
        self._threads = ThreadPoolExecutor(max_workers=64, thread_name_prefix="lane")

    def submit(self, lane: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return self._threads.submit(self._call, lane, function, arguments)

    def _call(self, lane: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        worker = self._workers.get(lane)
        if worker is None:
            worker = self._workers[lane] = _Worker()
        try:
            return worker.call(function, arguments)
        except (EOFError, OSError):
            worker.close()
            del self._workers[lane]
            raise WorkerLost("the process that did it has died") from None

    def close(self) -> None:
        for worker in list(self._workers.values()):
            worker.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Worker:
    """A process that does one piece of work after the other."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()

    def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        self._connection.send((function, arguments))
        result, error = self._connection.recv()
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(_SECONDS)
        if self._process.is_alive():
            self._process.kill()
        with contextlib.suppress(OSError):
            self._connection.close()


def _serve(connection: Connection) -> None:
    """A worker's life: it ends with the process that has started it, or by a signal, its files removed."""
    try:
        raise_on_signals()
        while True:
            function, arguments = connection.recv()
            try:
                done = function(*arguments), None
            except Exception as error:
                done = None, RuntimeError(f"{type(error).__name__}: {error}")
            connection.send(done)
    except (KeyboardInterrupt, EOFError, OSError):
        pass


class DaskExecutor:
    """The workers of a Dask scheduler, which repeats what a lost one did.

    Args:
        address: of the scheduler, e.g. ``tcp://10.0.0.1:8786``.

    Raises:
        ToolError: `dask.distributed` is not installed.
        InputError: there is no scheduler, or it has no workers.
    """

    def __init__(self, address: str):
        try:
            from distributed import Client  # type: ignore[reportMissingImports]
        except ImportError:
            raise ToolError(
                "--scheduler needs dask.distributed, which is not installed: install microfold[scheduler]"
            ) from None
        try:
            self._client: Any = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise InputError(
                f"--scheduler must be the address of a Dask scheduler; {address}: {error}"
            ) from None
        self.lanes = sum(self._client.nthreads().values())
        if not self.lanes:
            self._client.close()
            raise InputError(f"the scheduler {address} must have workers; it has none: start `dask worker`")

    def submit(self, lane: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        del lane
        outer: Future[Any] = Future()
        inner = self._client.submit(function, *arguments, pure=False)

        def done(future: Any) -> None:
            error = future.exception() if not future.cancelled() else None
            if outer.cancelled():
                return
            if future.cancelled() or type(error).__name__ in ("KilledWorker", "CancelledError"):
                outer.set_exception(WorkerLost(str(error or "the scheduler has given it up")))
            elif error is not None:
                outer.set_exception(error)
            else:
                outer.set_result(future.result())

        inner.add_done_callback(done)
        return outer

    def close(self) -> None:
        self._client.close()


def open_executor(workers: int, scheduler: str) -> Executor:
    """Processes of this machine, or, with an address, a scheduler's workers; errors as `DaskExecutor`."""
    return DaskExecutor(scheduler) if scheduler else LocalExecutor(workers)
