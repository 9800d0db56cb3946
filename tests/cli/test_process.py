"""The process: signals at any moment, and streams that are closed or full."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sampling import sampled, sampled_rows

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "models" / "made" / "cnn_int8.tflite"
# Runs a command; a signal comes when a module is about to be imported.
SIGNALLED = """
import os, runpy, signal, sys, importlib.abc

number, chosen, module, *arguments = sys.argv[1:]
# Shells ignore SIGINT for what they run behind "&", nohup ignores SIGHUP.
signal.signal(int(number), signal.default_int_handler if int(number) == signal.SIGINT else signal.SIG_DFL)

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == chosen:
            os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, Finder())
sys.argv[:] = ["microfold", *arguments]
runpy.run_module(module, run_name="__main__")
"""


def process(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, text=True, env=environment, check=False, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("module", "number", "status"),
    sampled_rows(
        [
            ("microfold.cli", signal.SIGINT, 130),
            ("microfold.cli.process", signal.SIGINT, 130),
            ("microfold.cli.app", signal.SIGINT, 130),
            ("typer", signal.SIGTERM, 143),
            ("numpy", signal.SIGINT, 130),
            ("microfold.transform", signal.SIGTERM, 143),
            ("microfold.verification.measure", signal.SIGHUP, 129),
        ],
        3,
    ),
)
def test_signals_while_modules_are_imported(tmp_path: Path, module: str, number: int, status: int) -> None:
    command = ("build", MODEL, "-t", "host", "-o", tmp_path / "out")
    result = process("-c", SIGNALLED, int(number), module, "microfold", *command)
    assert (result.returncode, result.stdout, result.stderr) == (status, "", "")
    assert list(tmp_path.iterdir()) == []


def test_signals_while_another_program_runs(tmp_path: Path) -> None:
    (tmp_path / "cc").write_text("#!/bin/sh\nkill -TERM $PPID\nexec sleep 60\n")
    (tmp_path / "cc").chmod(0o755)
    environment = {"CC": str(tmp_path / "cc"), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    code = f"import os; os.environ |= {environment!r}; import sys; from microfold.cli import main; main()"
    result = process("-c", code, "verify", MODEL, "-t", "host", timeout=50)
    assert (result.returncode, result.stdout, result.stderr) == (143, "", "")
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "arguments", sampled([("inspect", "x", "--json"), ("inspect", MODEL), ("inspect", MODEL, "--json")], 3)
)
def test_nobody_reads_the_output(arguments: tuple[object, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        result = process("-m", "microfold", *arguments, stdout=closed)
    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.parametrize(
    "arguments", sampled([("inspect", "x", "--json"), ("inspect", MODEL), ("passes", "--json")], 3)
)
def test_the_output_is_full(arguments: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what is left in a buffer fails a second time
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = process("-m", "microfold", *arguments, stdout=full)
        assert process("-m", "microfold", *arguments, stdout=full, stderr=full).returncode == 2
    assert result.returncode == 2
    assert result.stderr.startswith("microfold: cannot ")
    assert result.stderr.endswith(": No space left on device; make room, or choose another disk\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_streams_that_are_closed(tmp_path: Path) -> None:
    """No file that is opened gets the number of one of them."""
    command = f"exec {sys.executable} -m microfold build {MODEL} -o {tmp_path} >&- 2>&- <&-"
    result = subprocess.run(["sh", "-c", command], cwd=ROOT, check=False)
    assert result.returncode == 0
    assert json.loads((tmp_path / "cnn_int8_report.json").read_text())["model"] == "cnn_int8"


def test_output_that_the_terminal_cannot_show() -> None:
    environment = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = "[sys.executable, '-m', 'microfold', 'inspect', 'é.tflite']"
    code = f"import os, sys; os.execve(sys.executable, {command}, dict(os.environ) | {environment!r})"
    result = process("-c", code)
    assert result.returncode == 2
    assert result.stderr == "microfold: cannot read \\xe9.tflite: No such file or directory; check the path\n"
