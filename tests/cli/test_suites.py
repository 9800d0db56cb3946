"""Suites of many models, targets and levels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from microfold.cli.default_target import split_targets
from microfold.cli.suite import all_well, rows
from microfold.errors import Problem, UnsupportedModelError
from tests.cli.test_passes import CNN
from tests.command_line import microfold, refuse
from tests.needs import CROSS_TOOLS, need_tools


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "models"
    (found / "more").mkdir(parents=True)
    shutil.copy(CNN, found / "more" / "a.tflite")
    (found / "broken.tflite").write_bytes(CNN.read_bytes()[:100])
    return found


@pytest.mark.slow
def test_all_models_targets_and_levels_in_order(folder: Path, tmp_path: Path) -> None:
    words = ["verify", "--suite", folder, "-t", "host", "--levels", "speed,size", "--runs", "1"]
    words += ["--workers", "1", "--cache", tmp_path / "cache"]
    first = microfold(*words, "--json")
    assert first.status == 0, first.err
    reports = json.loads(first.out)
    assert [(r["model"], r["level"]) for r in reports] == [
        ("broken", "speed"), ("broken", "size"), ("a", "speed"), ("a", "size"),
    ]  # fmt: skip
    assert [r.get("refused") for r in reports] == [True, True, None, None]
    assert all(r["exact"] and r["inputs"] == 1 for r in reports[2:])
    kept = sorted((tmp_path / "cache").rglob("*.json"))
    assert len(kept) == 4
    # What is kept is taken, what is damaged is computed again, and other options are something else.
    texts = [path.read_text(encoding="utf-8") for path in kept]
    for path, text in zip(kept, texts, strict=True):
        path.write_text(text.replace('"inputs": 1', '"inputs": 7'), encoding="utf-8")
    again = json.loads(microfold(*words, "--json").out)
    assert [r["inputs"] for r in again[2:]] == [7, 7]
    for path in kept:
        path.write_text("{", encoding="utf-8")
    assert json.loads(microfold(*words, "--json").out) == reports
    assert "0 of 4 differ" in microfold(*words).out


@pytest.mark.slow
def test_bench_makes_a_table_over_cores() -> None:
    need_tools(*CROSS_TOOLS)
    reports = json.loads(microfold("bench", CNN, "-t", "cortex-m0plus,cortex-m4", "--json").out)
    assert [report["target"] for report in reports] == ["cortex-m0plus", "cortex-m4"]
    assert reports[0]["instructions"] > reports[1]["instructions"] > 0
    text = microfold("bench", CNN, "-t", "cortex-m0plus,cortex-m4").out
    assert "cortex-m0plus" in text and "cortex-m4 " in text and "all were compiled and run" in text


def test_bench_lists_the_kernels_of_a_suite(tmp_path: Path) -> None:
    shutil.copy(CNN, tmp_path / "cnn.tflite")
    words = ["bench", "--suite", tmp_path, "--kernels", "-t", "cortex-m4", "--levels", "speed,size"]
    found = microfold(*words, "--workers", "1")
    assert found.status == 0, found.err
    assert "kernels of 2 builds" in found.out and "s8_max_pool2d__dsp" in found.out
    reports = json.loads(microfold(*words, "--workers", "1", "--json").out)
    assert [report["level"] for report in reports] == ["speed", "size"]
    assert {"kernel", "win", "layers", "others"} <= reports[0]["kernels"][0].keys()


def test_all_targets_are_the_simulated_cores() -> None:
    found = split_targets("own.toml, all")
    assert {"cortex-m0plus", "cortex-m85", "own.toml"} <= set(found) and "host" not in found
    assert len(set(found)) == len(found)
    assert split_targets("host, cortex-m4") == ["host", "cortex-m4"]


def test_what_is_asked_for_must_make_sense(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "must contain .tflite models" in refuse("verify", "--suite", tmp_path / "empty")
    assert "not a folder" in refuse("bench", "--every-model", "--suite", CNN)
    assert "--levels may contain" in refuse("verify", "--suite", folder, "--levels", "fast")
    assert "--suite cannot be combined with" in refuse("verify", CNN, "--suite", folder)
    assert "requires a model" in refuse("verify")
    for target in (",", " , "):
        for command in ("verify", "bench"):
            assert "--target must list at least one" in refuse(
                command, "--suite", folder, "-t", target, *["--every-model"] * (command == "bench")
            )
    assert "--levels must list at least one" in refuse("verify", "--suite", folder, "--levels", ",")
    assert "nosuch" in refuse("verify", "--suite", folder, "-t", "host,nosuch")
    assert "--levels can only be used with --suite" in refuse("bench", CNN, "--levels", "speed")
    assert "--levels, --cache can only be used with" in refuse(
        "verify", CNN, "--levels", "size", "--cache", tmp_path
    )
    assert "--every-model requires" in refuse("bench", CNN, "--every-model")
    assert "--kernels requires" in refuse("bench", CNN, "--kernels")


@pytest.mark.slow
def test_models_of_one_name_are_told_apart_and_problems_are_named(folder: Path) -> None:
    (folder / "less").mkdir()
    (folder / "less" / "a.tflite").write_bytes(CNN.read_bytes()[:100])
    (folder / "more" / "b.mf").write_text("", encoding="utf-8")
    words = ["verify", "--suite", folder, "-t", "host", "--runs", "1", "--workers", "1"]
    result = microfold(*words)
    assert "less/a.tflite" in result.out and "more/a.tflite" in result.out
    assert "\nbroken  " in result.out
    assert result.err == "microfold: a suite uses only .tflite models; skipped: more/b.mf\n"
    reports = json.loads(microfold(*words, "--json").out)
    assert [(report["model"], report["file"]) for report in reports] == [
        ("broken", "broken.tflite"), ("a", "less/a.tflite"), ("a", "more/a.tflite"),
    ]  # fmt: skip


def test_tables_have_the_first_problem() -> None:
    error = UnsupportedModelError("a", [Problem("operator 3 (ABS)", "no such"), Problem("b", "c")])
    report = {"model": "a", "file": "x/a.tflite", "error": str(error)}
    assert rows([report])[0]["error"] == "operator 3 (ABS): no such (and 1 more)"
    assert rows([report | {"error": "one line"}])[0]["error"] == "one line"


def test_what_fails_is_not_well() -> None:
    assert all_well([{"exact": True}, {"error": "", "refused": True}, {"instructions": 3}])
    assert not all_well([{"exact": False}])
    assert not all_well([{"error": "", "refused": False}])
