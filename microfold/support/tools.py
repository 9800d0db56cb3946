"""Outside tools, run without input and for a limited time."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from microfold.errors import ToolError

COMPILE_SECONDS = 300.0


class ToolTimeout(ToolError):
    """A tool did not end in time."""


def run_tool(
    command: Sequence[str], folder: Path, timeout: float, what: str, advice: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs a tool to its end, whatever its exit code, without input.

    Args:
        timeout: seconds of real time.
        what: the task, for the error.
        advice: what to do if it does not end in time.
    Raises:
        ToolTimeout: it does not end in time.
        ToolError: it cannot be started.
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
