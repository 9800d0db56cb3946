"""The process around the commands: its streams, its signals and its exit code."""

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

# How many more objects there may be before Python looks for cycles among them. Searches keep what they find,
# and make few cycles: to look through all of it every 700 objects takes a seventh of their time. A build of a
# small model makes fewer than these.
COLLECTED_AFTER = 300_000
# Threads of numpy's products: to start more takes longer than all products of a small model do.
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def run_process(arguments: Sequence[str]) -> int:
    """Run a command line, whatever the streams are; the exit code. After a signal the process ends here."""
    try:
        raise_on_signals()
        gc.set_threshold(COLLECTED_AFTER)
        for threads in _ONE_THREAD:
            os.environ.setdefault(threads, "1")
        _open_streams()
        from microfold.cli.app import run  # takes most of the time of a short command

        status = run(arguments)
        status = _flush(status)
        gc.freeze()  # what is left need not be searched for cycles when the process ends
    except BaseException:
        # What a signal interrupts may turn its exception into another one.
        if not received:
            raise
        status = 0
    ignore_signals()
    if received:
        # Python ends as if by Ctrl-C if an exec() was interrupted, e.g. of a dataclass, whatever is returned.
        atexit._run_exitfuncs()  # type: ignore[reportPrivateUsage]
        os._exit(128 + received[0])
    return status


def _open_streams() -> None:
    """Nothing else may get the numbers of standard streams that are closed; no character is unprintable."""
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
    """Write what is left to be written; the exit code if that fails."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            status = CLOSED_OUTPUT
            _discard(stream)
        except OSError as error:
            # A command that failed has said why; it may have been this.
            if stream is sys.stdout and status < 2:
                from microfold.support.files import reason

                say(f"cannot write the output: {reason(error)}")
            status = status or 2
            _discard(stream)
    return status


def _discard(stream: TextIO) -> None:
    """What cannot be written must not be tried again when the process ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
