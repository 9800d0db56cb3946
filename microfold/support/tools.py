"""Execution of external tools, without input and with a time limit."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from microfold.errors import ToolError

COMPILE_SECONDS = 300.0


class ToolTimeout(ToolError):
    """Error: a tool did not end in time."""


def run_tool(
    command: Sequence[str], folder: Path, timeout: float, what: str, advice: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end, without input. Any exit code is accepted.

    Args:
        timeout: time limit, in seconds of real time.
        what: the task, for the error message.
        advice: remedy if the tool does not end in time.
    Raises:
        ToolTimeout: the tool does not end in time.
        ToolError: the tool cannot be started.
    """
    try:
        return subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolTimeout(f"{what} must end within {timeout:g} s; it did not{advice}") from None
    except OSError as error:
        raise ToolError(f"{what}: {command[0]} cannot be started: {error}") from None
