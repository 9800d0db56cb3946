"""Runner on the user's board: flashes firmware and reads its output."""

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

from msgspec import Struct

from microfold.errors import InputError, RunError
from microfold.options import Options
from microfold.program import Program
from microfold.support.scratch import scratch_folder
from microfold.target import Target
from microfold.tune.board import Board
from microfold.tune.image import build_image
from microfold.tune.measure import RunnerError, Times
from microfold.tune.setting import Setting, code_flags

SECONDS = 120.0
# Characters at the end of a command's output that errors show.
_SHOWN = 300
END = "microfold-tune end"
# Time limit for a command to end after it has closed its output, in seconds.
_END_SECONDS = 5.0


class BoardRunner(Struct, frozen=True):
    """Runner of firmware on boards. The command of each board is the name of its lane.

    Attributes:
        timeout: time limit to flash a board and receive its output, in seconds.
    """

    board: Board
    timeout: float = SECONDS

    def setting(self, target: Target, options: Options) -> Setting:
        board = self.board
        return Setting(target.name, board.name, board.clock, board.caches, code_flags(target, options))

    def check(self, target: Target, options: Options) -> None:
        if not (target.has("thumb1") or target.has("thumb2")):
            raise InputError(f"a board requires a Cortex-M target; {target.name} is not one")
        unable = {"--weights blob": options.weights == "blob", "--taps": options.taps}
        if any(unable.values()):
            given = ", ".join(option for option, used in unable.items() if used)
            raise InputError(
                f"tuning on a board cannot be combined with {given}: remove the options; "
                "builds with them also use the measurements"
            )

    def times(self, program: Program, lane: str) -> Times:
        with scratch_folder() as folder:
            elf = build_image(program, self.board, folder)
            text = run_command(lane, elf, self.timeout)
        return read_times(text, len(program.layers), self.board.runs)


def entry_command(entry: str) -> str:
    """Return the command that calls a Python function ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``."""
    words = [sys.executable, "-m", "microfold.tune.entry", entry]
    return f"{shlex.join(words)} {{elf}}"


def check_command(command: str) -> None:
    """Raise `InputError` if a command has no placeholder for the image."""
    if "{elf}" not in command or not _words(command, Path("image.elf")):
        raise InputError(f"the command of a runner must have {{elf}} for the image; it is {command!r}")


def _words(command: str, elf: Path) -> list[str]:
    try:
        return [word.replace("{elf}", str(elf)) for word in shlex.split(command)]
    except ValueError as error:
        raise InputError(f"the command of a runner must have shell syntax; {command!r}: {error}") from None


def run_command(command: str, elf: Path, timeout: float) -> str:
    """Run a command that flashes an image, and return its output (both streams).

    The command is killed when the board has printed `END`. All its child processes are also killed.

    Raises:
        RunnerError: the command cannot be started, fails, or exceeds the time limit.
    """
    try:
        process = subprocess.Popen(
            _words(command, elf),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a separate group, to kill child processes
        )
    except OSError as error:
        raise RunnerError(f"its command cannot be started: {error}") from None
    lines: list[str] = []
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    try:
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise RunnerError(f"the board must answer within {timeout:g} s; it did not")
        text = "".join(lines)
        if END in text:
            return text
        with contextlib.suppress(subprocess.TimeoutExpired):  # the output is closed
            process.wait(_END_SECONDS)
    finally:
        _end(process)
    if process.returncode != 0:
        shown = text[-_SHOWN:].strip() or "it printed nothing"
        raise RunnerError(f"its command ended with status {process.returncode}: {shown}")
    return text


def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if END in line:
            return


def _end(process: subprocess.Popen[str]) -> None:
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
    """Return the times in a board's output, which can contain other text.

    Raises:
        RunnerError: times are missing, or the counter did not count.
        RunError: the firmware has faulted.
    """
    if "microfold-tune fault" in text:
        raise RunError("the firmware has faulted: the stack may be too small, or the target wrong")
    head = _HEAD.search(text)
    if head is None or (int(head[1]), int(head[2])) != (layers, runs):
        raise RunnerError(
            f"the board must print times of {layers} layers in {runs} runs; it printed "
            f"{text[-_SHOWN:].strip() or 'nothing'}"
        )
    found = {(int(m[1]), int(m[2])): int(m[3]) for m in _LAYER.finditer(text, head.end())}
    between = {int(m[1]): int(m[2]) for m in _BETWEEN.finditer(text, head.end())}
    wanted = [[(run, layer) for run in range(runs)] for layer in range(layers)]
    missing = sum(key not in found for keys in wanted for key in keys)
    missing += sum(run not in between for run in range(runs))
    if missing or END not in text:
        raise RunnerError(
            f"the board must print {(layers + 1) * runs} times and an end line; {missing} times are missing"
        )
    if layers and not any(found[key] for keys in wanted for key in keys):
        raise RunnerError(
            "the counter must count; all times are 0 cycles: set counter in the board's file, "
            'e.g. counter = "systick", or check what the board prints'
        )
    by_layer: Sequence[Sequence[int]] = [[found[key] for key in keys] for keys in wanted]
    totals = [sum(found[run, layer] for layer in range(layers)) + between[run] for run in range(runs)]
    return Times(min(totals, default=0), by_layer)
