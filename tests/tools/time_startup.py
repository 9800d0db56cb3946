"""CPU time of what users wait for: ``python -m tests.tools.time_startup [MODEL.tflite]``.

Each line is the least of some fresh processes, children included, in seconds of user and system time.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 5
MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def cpu_seconds(command: list[str]) -> float:
    """Of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(model: Path) -> None:
    microfold = [sys.executable, "-m", "microfold"]
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "python, nothing else": [sys.executable, "-c", ""],
            "import microfold": [sys.executable, "-c", "import microfold"],
            "microfold --help": [*microfold, "--help"],
            "microfold targets": [*microfold, "targets"],
            f"microfold build {model.name}": [*microfold, "build", str(model), "-o", folder],
        }
        for name, command in commands.items():
            print(f"{min(cpu_seconds(command) for _ in range(RUNS)):6.2f} s  {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else MODEL)
