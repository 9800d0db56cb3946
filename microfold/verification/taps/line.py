"""Records straight from a serial port, or whatever else pyserial opens by a URL."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from microfold.codegen.taps import Role
from microfold.errors import InputError
from microfold.verification.taps.records import RecordParser

# A read gives what has come after so many seconds, or this many bytes.
_SLICE = 0.1
_PIECE = 4096


def receive(port: str, baud: int, runs: int, patience: float) -> bytes:
    """What comes over a port; see `collect`.

    Args:
        port: a device (``/dev/ttyACM0``, ``COM3``) or one of pyserial's URLs (``socket://localhost:19021``).

    Raises:
        InputError: pyserial is not installed, or the port cannot be opened or read.
    """
    try:
        import serial
    except ImportError:
        raise InputError(
            "reading a port needs pyserial, which is not installed: pip install 'microfold[serial]', "
            "or write what comes over the port to a file, and give that"
        ) from None
    try:
        line: Any = serial.serial_for_url(port, baudrate=baud, timeout=_SLICE)
        with line:
            return collect(lambda: line.read(_PIECE), runs, patience)
    except (OSError, ValueError) as error:  # SerialException is an OSError
        raise InputError(
            f"a port must be one that can be read at {baud} baud; {port!r} is not: {error}; "
            "check its name, its permissions, and that no other program has it open"
        ) from None


def collect(read: Callable[[], bytes], runs: int, patience: float) -> bytes:
    """What is read until the last of some runs has ended.

    Args:
        read: gives what has come, maybe nothing. If it fails behind the first record, that is the end.
        runs: that are to be there from their beginning to their end.
        patience: seconds without a whole record after which the rest is given up.
    """
    parser, received = RecordParser(), bytearray()
    begun: set[int] = set()
    ended = records = 0
    end = time.monotonic() + patience
    while ended < runs and time.monotonic() < end:
        try:
            data = read()
        except OSError:
            if not records:
                raise
            break
        received += data
        for record in parser.feed(data):
            records += 1
            end = time.monotonic() + patience
            if record.role is Role.RUN_BEGIN:
                begun.add(record.build)
            elif record.role is Role.RUN_END:
                ended += record.build in begun
    return bytes(received)
