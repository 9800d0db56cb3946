"""Executors of tasks: processes of this machine, or the workers of a Dask scheduler."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import re
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, Protocol

from microfold.errors import InputError, ToolError
from microfold.support.signals import raise_on_signals

# Time limit for a worker to clean up after it is told to end, in seconds.
_SECONDS = 5.0
_CONNECT_SECONDS = 20
_GONE_SECONDS = 0.5
# Interval between checks of the scheduler, in seconds.
_WATCH_SECONDS = 1.0
_ADDRESS = re.compile(r"(?:[a-z]+://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})/?")


class WorkerLost(Exception):
    """Error: the worker of a task has died. The task can be repeated."""


class ExecutorLost(ToolError):
    """Error: no workers are left to run tasks."""


class Executor(Protocol):
    """Executor of tasks in lanes. Each lane runs one task at a time."""

    @property
    def lanes(self) -> int:
        """Maximum number of lanes at a time."""
        ...

    def submit(self, lane: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a task. If its worker dies, the exception of the future is `WorkerLost`."""
        ...

    def close(self) -> None:
        """Cancel all unfinished tasks."""
        ...


class LocalExecutor:
    """Executor with one process per lane, started at the first use, and again after it has died.

    Args:
        workers: number of lanes; 0: one per core.
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
            raise WorkerLost("the worker process has died") from None

    def close(self) -> None:
        for worker in list(self._workers.values()):
            worker.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Worker:
    """Process that runs one task after the other."""

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
    """Run the tasks of a worker until its parent process ends or a signal arrives, then clean up."""
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
    """Executor on the workers of a Dask scheduler, which itself repeats the tasks of lost workers.

    Args:
        address: address of the scheduler, e.g. ``tcp://10.0.0.1:8786``.

    Raises:
        ToolError: `dask.distributed` is not installed.
        InputError: the address is invalid, or it has no scheduler with workers.
    """

    def __init__(self, address: str):
        check_scheduler(address)
        self._client: Any = _connect(address)
        self.lanes = sum(self._client.nthreads().values())
        if not self.lanes:
            self._client.close()
            raise InputError(f"the scheduler {address} must have workers; it has none: start `dask worker`")
        self._address = address
        self._open: set[Future[Any]] = set()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def submit(self, lane: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        del lane
        outer: Future[Any] = Future()
        self._open.add(outer)
        inner = self._client.submit(function, *arguments, pure=False)

        def done(future: Any) -> None:
            error = future.exception() if not future.cancelled() else None
            if future.cancelled() or type(error).__name__ in ("KilledWorker", "CancelledError"):
                self._set(outer, error=WorkerLost(str(error or "the scheduler has cancelled it")))
            elif error is not None:
                self._set(outer, error=error)
            else:
                self._set(outer, future.result())

        inner.add_done_callback(done)
        return outer

    def _set(self, outer: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
        if self._closed.is_set() or self._lost():
            error = ExecutorLost(f"the scheduler {self._address} can no longer be reached")
        with contextlib.suppress(KeyError, InvalidStateError):
            self._open.remove(outer)
            if error is not None:
                outer.set_exception(error)
            else:
                outer.set_result(result)

    def _lost(self) -> bool:
        return self._client.status != "running"

    def _watch(self) -> None:
        """End all tasks when the scheduler is lost. The client itself would wait for it to come back."""
        while not self._closed.wait(_WATCH_SECONDS):
            if self._lost():
                for outer in list(self._open):
                    self._set(outer)

    def close(self) -> None:
        self._closed.set()
        # The client would wait for an answer from a lost scheduler.
        with contextlib.suppress(OSError, TimeoutError):
            self._client.close(timeout=_GONE_SECONDS if self._lost() else _SECONDS)


def check_scheduler(address: str) -> None:
    """Raise `InputError` if the text is not a valid address of a scheduler."""
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > 65535:
        raise InputError(
            "--scheduler must be the address of a Dask scheduler, e.g. tcp://10.0.0.1:8786; "
            f"it is {address!r}"
        )


def _connect(address: str) -> Any:
    try:
        from distributed import Client  # type: ignore[reportMissingImports]
    except ImportError:
        raise ToolError(
            "--scheduler requires dask.distributed, which is not installed: install microfold[scheduler]"
        ) from None
    found = _ADDRESS.fullmatch(address)
    assert found is not None  # checked
    # Problems are reported once, as `MicrofoldError`.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        # Check the connection first, because clients retry for long.
        with socket.create_connection((found["host"].strip("[]"), int(found["port"])), _CONNECT_SECONDS):
            pass
        return Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"--scheduler must be the address of a Dask scheduler; {address}: {error}") from None


def open_executor(workers: int, scheduler: str) -> Executor:
    """Return a `LocalExecutor`, or a `DaskExecutor` if `scheduler` is an address; it raises its errors."""
    return DaskExecutor(scheduler) if scheduler else LocalExecutor(workers)
