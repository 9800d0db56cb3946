"""Runs on the user's board: flashes firmware and reads what it prints."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from microfold.errors import InputError, RunError
from microfold.options import Options
from microfold.program import Program
from microfold.support.frozen import frozen
from microfold.support.scratch import scratch_folder
from microfold.target import Target
from microfold.tune.board import Board
from microfold.tune.image import build_image
from microfold.tune.measure import RunnerError, Times
from microfold.tune.setting import Setting, code_flags

SECONDS = 120.0
# What a command has printed, of which errors show the end.
_SHOWN = 300
END = "microfold-tune end"
# What has closed its streams has so many seconds to say how it ended.
_END_SECONDS = 5.0


@frozen
class BoardRunner:
    """Runs firmware on boards, of which each has a command that is its lane's name.

    Attributes:
        timeout: seconds that a board may take to be flashed and to answer.
    """

    board: Board
    timeout: float = SECONDS

    def setting(self, target: Target, options: Options) -> Setting:
        board = self.board
        return Setting(target.name, board.name, board.clock, board.caches, code_flags(target, options))

    def check(self, target: Target, options: Options) -> None:
        if not (target.has("thumb1") or target.has("thumb2")):
            raise InputError(f"firmware for boards is built for Cortex-M; target {target.name} is none")
        unable = {"--weights blob": options.weights == "blob", "--taps": options.taps}
        if any(unable.values()):
            given = ", ".join(option for option, used in unable.items() if used)
            raise InputError(
                "boards measure code that has its constants in arrays and no taps; given are "
                f"{given}: leave them away to tune; builds with them use the figures, too"
            )

    def times(self, program: Program, lane: str) -> Times:
        with scratch_folder() as folder:
            elf = build_image(program, self.board, folder)
            text = run_command(lane, elf, self.timeout)
        return read_times(text, len(program.layers), self.board.runs)


def entry_command(entry: str) -> str:
    """The command that calls a Python function ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``."""
    words = [sys.executable, "-m", "microfold.tune.entry", entry]
    return f"{shlex.join(words)} {{elf}}"


def check_command(command: str) -> None:
    """Raises InputError if a command names no image."""
    if "{elf}" not in command or not _words(command, Path("image.elf")):
        raise InputError(f"a runner's command must have {{elf}} for the image; it is {command!r}")


def _words(command: str, elf: Path) -> list[str]:
    try:
        return [word.replace("{elf}", str(elf)) for word in shlex.split(command)]
    except ValueError as error:
        raise InputError(f"a runner's command must be written as for a shell; {command!r}: {error}") from None


def run_command(command: str, elf: Path, timeout: float) -> str:
    """What a command prints that flashes an image, both streams; it is ended once the board has said its end.

    Raises:
        RunnerError: it cannot be started, fails or takes too long; nothing that it has started is left.
    """
    try:
        process = subprocess.Popen(
            _words(command, elf),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a group of its own, to end what it has started
        )
    except OSError as error:
        raise RunnerError(f"its command cannot be started: {error}") from None
    lines: list[str] = []
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    try:
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise RunnerError(f"it must answer within {timeout:g} s; it did not")
        text = "".join(lines)
        if END in text:
            return text
        with contextlib.suppress(subprocess.TimeoutExpired):  # it has closed its streams
            process.wait(_END_SECONDS)
    finally:
        _end(process)
    if process.returncode != 0:
        shown = text[-_SHOWN:].strip() or "it has printed nothing"
        raise RunnerError(f"its command ended with status {process.returncode}: {shown}")
    return text


def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
    """All lines up to the end."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if END in line:
            return


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a command with all that it has started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    process.wait()


_HEAD = re.compile(r"microfold-tune 2 (\d+) (\d+)")
_LAYER = re.compile(r"microfold-tune layer (\d+) (\d+) (\d+)")
_BETWEEN = re.compile(r"microfold-tune between (\d+) (\d+)")


def read_times(text: str, layers: int, runs: int) -> Times:
    """The times in what a board has printed, whatever is around them.

    Raises:
        RunnerError: they are not all there, or the counter stood still.
        RunError: the firmware has run into a fault.
    """
    if "microfold-tune fault" in text:
        raise RunError("the firmware has run into a fault: the stack may be too small, or the target wrong")
    head = _HEAD.search(text)
    if head is None or (int(head[1]), int(head[2])) != (layers, runs):
        raise RunnerError(
            f"the board must print times of {layers} layers in {runs} runs; it has printed "
            f"{text[-_SHOWN:].strip() or 'nothing'}"
        )
    found = {(int(m[1]), int(m[2])): int(m[3]) for m in _LAYER.finditer(text, head.end())}
    between = {int(m[1]): int(m[2]) for m in _BETWEEN.finditer(text, head.end())}
    wanted = [[(run, layer) for run in range(runs)] for layer in range(layers)]
    missing = sum(key not in found for keys in wanted for key in keys)
    missing += sum(run not in between for run in range(runs))
    if missing or END not in text:
        raise RunnerError(
            f"the board must print {(layers + 1) * runs} times and an end; {missing} times are missing"
        )
    if layers and not any(found[key] for keys in wanted for key in keys):
        raise RunnerError(
            "its counter must count; all times are 0 cycles: set counter in the board's file, "
            'e.g. counter = "systick", or check what the board prints'
        )
    by_layer: Sequence[Sequence[int]] = [[found[key] for key in keys] for keys in wanted]
    totals = [sum(found[run, layer] for layer in range(layers)) + between[run] for run in range(runs)]
    return Times(min(totals, default=0), by_layer)
