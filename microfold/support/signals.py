"""Signals that end a process: as exceptions, so that all is cleaned up, and late where they would harm."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType

# Windows has the first two only.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
SIGNALS = tuple(signal.Signals[name] for name in _NAMES if name in signal.Signals.__members__)

received: list[int] = []
"""The signals that `raise_on_signals` has turned into exceptions."""


def raise_on_signals() -> None:
    """From now on, a signal that ends a process raises KeyboardInterrupt, whichever it is."""

    def handler(number: int, _: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    for each in SIGNALS:
        # A signal that is ignored, e.g. by nohup, stays so.
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, handler)


def ignore_signals() -> None:
    """From now on, a signal that ends a process does nothing: it is about to end."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


@contextlib.contextmanager
def deferred_signals() -> Generator[None]:
    """Signals that end a process wait until the block has been left; only the main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    handlers = {each: signal.getsignal(each) for each in SIGNALS}
    for each, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(each, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        for each, handler in handlers.items():
            # None: set outside of Python, so that it cannot be set again from here.
            if handler is not None and handler is not signal.SIG_IGN:
                signal.signal(each, handler)
        for number in waiting[:1]:
            signal.raise_signal(number)
