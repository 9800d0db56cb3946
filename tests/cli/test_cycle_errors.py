"""Wherever estimated cycles are printed, it is said how far they may be off."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from microfold.reporting.terminal.bench import print_bench_suite, print_bench_summary, print_comparison
from microfold.target import load
from microfold.verification.benchmark.suite import BenchmarkRow
from tests.command_line import succeed

SINE = Path(__file__).resolve().parents[2] / "examples" / "sine" / "sine.tflite"
FIGURES = dict.fromkeys(("arena", "stack", "weights", "code"), 1)


def report(target: str, cycles: int | None = 2) -> dict[str, Any]:
    model = load(target).cycle_model
    return {
        "model": "m",
        "target": target,
        "level": "size",
        "macs": 1,
        "instructions": 1,
        "instructions_per_mac": 1.0,
        "estimated_cycles": cycles,
        "cycles_error": model.error if model is not None else None,
        "ram": FIGURES,
        "flash": FIGURES,
    }


@pytest.mark.parametrize(("target", "error"), [("cortex-m7", 30), ("cortex-m0plus", 5)])
def test_commands_that_run_nothing(target: str, error: int, tmp_path: Path) -> None:
    assert f"cycles (timing model +-{error} %" in succeed("build", SINE, "-t", target, "-o", tmp_path)
    assert json.loads((tmp_path / "sine_report.json").read_text())["cycles_error"] == error
    for command in ("kernels", "tradeoffs"):
        assert f"cycles are estimates, +-{error} % on {target}," in succeed(command, SINE, "-t", target)


def test_without_cycles_there_is_no_error(tmp_path: Path) -> None:
    assert "cycles (" not in succeed("build", SINE, "-t", "host", "-o", tmp_path)
    assert json.loads((tmp_path / "sine_report.json").read_text())["cycles_error"] is None
    assert "cycles are estimates" not in succeed("kernels", SINE, "-t", "host")


def test_several_models(capsys: pytest.CaptureFixture[str]) -> None:
    found: Any = SimpleNamespace(**report("cortex-m33"))
    found.ram, found.flash = SimpleNamespace(**FIGURES), SimpleNamespace(**FIGURES)
    print_bench_summary([found, found])
    printed = capsys.readouterr().out
    assert "cycles are estimates, +-20 % on cortex-m33, wait" in printed and "compare" not in printed


def test_cycles_of_different_cores_are_not_to_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    reports = [report("cortex-m4"), report("cortex-m85"), report("host", None)]
    print_bench_suite(reports)
    printed = capsys.readouterr().out
    assert "estimates, +-5 % on cortex-m4, +-40 % on cortex-m85, wait" in printed
    assert "do not compare cycles of different cores" in printed
    print_bench_suite([report("host", None)])
    assert "cycles are estimates" not in capsys.readouterr().out


def test_beside_figures_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        BenchmarkRow("cortex-m4", "m", figure, 2, {"other": 4})
        for figure in ("instructions", "estimated_cycles")
    ]
    print_comparison(rows, {"cortex-m4": 5, "cortex-m7": 30})
    assert capsys.readouterr().out.count("cycles are estimates, +-5 % on cortex-m4, wait") == 1
