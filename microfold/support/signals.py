"""Handling of terminating signals: conversion to exceptions for clean-up, and deferral."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType

# Windows has only the first two.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
SIGNALS = tuple(signal.Signals[name] for name in _NAMES if name in signal.Signals.__members__)

received: list[int] = []
"""Signals that `raise_on_signals` has converted to exceptions."""


def raise_on_signals() -> None:
    """Convert all terminating signals to KeyboardInterrupt from now on."""

    def handler(number: int, _: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    for each in SIGNALS:
        # Signals that are ignored, e.g. by nohup, stay ignored.
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, handler)


def ignore_signals() -> None:
    """Ignore all terminating signals from now on, because the process is already ending."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


@contextlib.contextmanager
def deferred_signals() -> Generator[None]:
    """Defer terminating signals until the end of the block. Only the main thread receives signals."""
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
            # A handler None was set outside of Python and cannot be restored.
            if handler is not None and handler is not signal.SIG_IGN:
                signal.signal(each, handler)
        for number in waiting[:1]:
            signal.raise_signal(number)
