"""The named references in a process of their own: on odd models they crash, or never end."""

from __future__ import annotations

import contextlib
import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

SECONDS = 20


def _serve(channel: Connection) -> None:
    import os

    from microfold.errors import MicrofoldError
    from microfold.frontend.tflite import trace_model
    from tests import oracle

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)  # the interpreters write to it
    while True:
        data, calls = channel.recv()
        try:
            traced = trace_model(data)
            name, faults = oracle.judge(data, traced, calls)
            if name == "litert" and faults:
                # Some of its reference kernels are wrong, e.g. SUM of int16.
                with contextlib.suppress(oracle.OracleError):
                    wanted = oracle.compared_tensors(data, traced)
                    results = oracle.litert(data, calls, wanted, reference=False)
                    faults = oracle.differences(traced, calls, results) and faults
            channel.send((name, faults))
        except (MicrofoldError, ValueError, RuntimeError, KeyError, IndexError) as error:
            channel.send(("", [f"no comparison: {error}"]))


class Wheels:
    """Compares models with the oracle that decides, see `tests.oracle.judge`."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._channel: Any = None

    def judge(self, data: bytes, calls: list[list[Any]]) -> tuple[str, list[str]]:
        """The oracle's name, empty if none runs the model to its end, and differences."""
        if self._process is None:
            self._channel, theirs = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        try:
            self._channel.send((data, calls))
            if self._channel.poll(SECONDS):
                return self._channel.recv()
        except (EOFError, ConnectionError):
            pass
        self.close()
        return "", []

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._channel.close()
            self._process = None
