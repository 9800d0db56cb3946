"""Receiver of trace records from a serial port or a pyserial URL."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from microfold.codegen.tensor_trace import Role
from microfold.errors import InputError
from microfold.verification.tensor_trace.records import RecordParser

# Time limit in seconds, and maximum number of bytes, of a read.
_SLICE = 0.1
_PIECE = 4096


def receive(port: str, baud: int, runs: int, patience: float) -> bytes:
    """Return the bytes received from a port; see `collect`.

    Args:
        port: device (``/dev/ttyACM0``, ``COM3``) or pyserial URL (``socket://localhost:19021``).

    Raises:
        InputError: pyserial is not installed, or the port cannot be opened or read.
    """
    try:
        import serial
    except ImportError:
        raise InputError(
            "reading a port requires pyserial, which is not installed: pip install 'microfold[serial]', "
            "or write the received bytes to a file and pass the file"
        ) from None
    try:
        line: Any = serial.serial_for_url(port, baudrate=baud, timeout=_SLICE)
        with line:
            return collect(lambda: line.read(_PIECE), runs, patience)
    except (OSError, ValueError) as error:  # SerialException is an OSError
        raise InputError(
            f"a port must be readable at {baud} baud; {port!r} is not: {error}; "
            "check its name, its permissions, and that no other program has it open"
        ) from None


def collect(read: Callable[[], bytes], runs: int, patience: float) -> bytes:
    """Read until a number of complete runs has been received, and return all bytes.

    Args:
        read: returns the available bytes, possibly none. A failure after the first record ends the reception.
        runs: number of runs to receive from start to end.
        patience: time limit for each record, in seconds.
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
