"""Process of the command line: streams, signals and exit code."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from microfold.cli.exit_codes import CLOSED_OUTPUT
from microfold.cli.notices import say
from microfold.support.signals import ignore_signals, raise_on_signals, received

# Number of new objects after which Python collects reference cycles. Compiler searches keep most objects and
# create few cycles: a collection every 700 objects takes a seventh of their time. A build of a small model
# creates fewer objects than this.
COLLECTED_AFTER = 300_000
# Environment variables that limit numpy's matrix products to one thread. Starting more threads takes longer
# than all products of a small model.
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def run_process(arguments: Sequence[str]) -> int:
    """Run a command line, even with closed streams, and return its exit code.

    After a signal the process ends in this function.
    """
    try:
        raise_on_signals()
        gc.set_threshold(COLLECTED_AFTER)
        for threads in _ONE_THREAD:
            os.environ.setdefault(threads, "1")
        _open_streams()
        from microfold.cli.app import run  # most of the run time of a short command

        status = run(arguments)
        status = _flush(status)
        gc.freeze()  # skip the collection of cycles at exit
    except BaseException:
        # Interrupted code may replace the signal's exception by another one.
        if not received:
            raise
        status = 0
    ignore_signals()
    if received:
        # If an exec() was interrupted, e.g. in `dataclass`, Python would ignore the status and exit as after
        # Ctrl-C. Therefore end the process here.
        atexit._run_exitfuncs()  # type: ignore[reportPrivateUsage]
        os._exit(128 + received[0])
    return status


def _open_streams() -> None:
    """Open closed standard streams, and escape unprintable characters.

    Otherwise the next file that is opened would get the number of a closed stream.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if sys.stdout is None:  # type: ignore[reportUnnecessaryComparison]  # it was closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:  # type: ignore[reportUnnecessaryComparison]
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _flush(status: int) -> int:
    """Flush the streams, and return the exit code, which changes if that fails."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            status = CLOSED_OUTPUT
            _discard(stream)
        except OSError as error:
            # A failed command has printed its reason already, which may be this error.
            if stream is sys.stdout and status < 2:
                from microfold.support.files import reason

                say(f"cannot write the output: {reason(error)}")
            status = status or 2
            _discard(stream)
    return status


def _discard(stream: TextIO) -> None:
    """Redirect a broken stream to the null device, so that Python does not flush it again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
