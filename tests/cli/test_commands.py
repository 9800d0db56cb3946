"""The command line: outputs, exit codes, and errors without tracebacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from microfold.simulate.toolchain import ARM_COMPILER, find_tool
from tests.command_line import microfold, refuse, succeed
from tests.needs import CROSS_TOOLS, need_tools

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models" / "made"
CNN = MODELS / "cnn_int8.tflite"


def test_build_writes_c_and_report(tmp_path: Path) -> None:
    output = succeed("build", CNN, "-o", tmp_path, "--json")
    report = json.loads(output)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cnn_int8.c",
        "cnn_int8.h",
        "cnn_int8_helpers.h",
        "cnn_int8_report.json",
        "cnn_int8_weights.c",
        "cnn_int8_weights.h",
    ]
    assert json.loads((tmp_path / "cnn_int8_report.json").read_text()) == report
    assert report["macs"] == 9856
    assert set(report["ram"]) >= {"arena", "state", "stack"}
    assert set(report["flash"]) >= {"weights", "code"}
    assert all(set(layer) >= {"name", "op", "kernel", "macs"} for layer in report["layers"])


def test_build_is_deterministic(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        succeed("build", CNN, "-t", "cortex-m4", "-o", tmp_path / folder)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_build_prints_how_to_call_it(tmp_path: Path) -> None:
    output = succeed("build", CNN, "-o", tmp_path, "--name", "digits", "--single-file")
    assert "digits_run(&network);" in output
    assert "arena" in output
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "digits.c",
        "digits.h",
        "digits_helpers.h",
        "digits_report.json",
    ]


def test_build_without_a_c_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are written, and the missing figures have a reason."""
    need_tools(ARM_COMPILER)
    wrapper = tmp_path / ARM_COMPILER
    wrapper.write_text(f'#!/bin/sh\nexec {find_tool(ARM_COMPILER)} -nostdinc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    output = succeed("build", CNN, "-t", "cortex-m3", "-o", tmp_path / "out")
    assert f"not measured: {ARM_COMPILER} has no C library" in " ".join(output.split())
    assert (tmp_path / "out" / "cnn_int8.c").is_file()


def test_verify_on_the_host() -> None:
    report = json.loads(succeed("verify", CNN, "--json"))
    assert report["exact"] is True
    assert report["inputs"] == 8
    assert report["tensors"] >= 8 * 5
    assert report["first_difference"] is None


def test_loops_of_unknown_length(tmp_path: Path) -> None:
    """Refused with what to do; with a limit, verify says which inputs reach it."""
    model = MODELS / "control_flow" / "while_input_f32.tflite"
    message = refuse("build", model, "-o", tmp_path)
    assert "a loop must have a bound on how often it runs" in message
    assert "--max-iterations" in message
    explained = succeed("ir", model, "--explain", "lower_loops")
    assert "it may run 2147483651 times; a bound must be at most 65536" in explained
    output = " ".join(succeed("verify", model, "--max-iterations", "5").split())
    assert "for 4 of 8 input sets a loop was stopped after 5 iterations" in output
    report = json.loads(succeed("build", model, "-o", tmp_path, "--max-iterations", "5", "--json"))
    assert report["options"]["max_iterations"] == 5
    (layer,) = report["layers"]
    assert (layer["op"], layer["kernel"]) == ("loop", "loop__c")


def test_verify_with_own_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 1, 8, 8, 1), np.int8))
    assert json.loads(succeed("verify", CNN, "--inputs", tmp_path / "x.npy", "--json"))["inputs"] == 3


@pytest.mark.slow
def test_verify_and_bench_on_a_simulated_core() -> None:
    need_tools(*CROSS_TOOLS)
    assert json.loads(succeed("verify", CNN, "-t", "cortex-m4", "--json"))["exact"] is True
    report = json.loads(succeed("bench", CNN, "-t", "cortex-m4", "--json"))
    assert report["instructions"] > 0
    assert all(layer["instructions"] > 0 for layer in report["layers"])
    # The hooks cost little: layers add up to about the total.
    assert sum(layer["instructions"] for layer in report["layers"]) == pytest.approx(
        report["instructions"], rel=0.1
    )
    assert report["ram"]["stack"] > 0


def test_run_prints_and_saves_outputs(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8, 1), np.int8))
    output = succeed("run", CNN, "--input", tmp_path / "x.npy", "-o", tmp_path / "y.npz")
    assert "int8[1,10]" in output
    assert np.load(tmp_path / "y.npz")["output_0"].shape == (1, 1, 10)


def test_inspect_names_operators() -> None:
    inspection = json.loads(succeed("inspect", CNN, "--json"))
    assert [row["operator"] for row in inspection["operators"]][:2] == ["CONV_2D", "MAX_POOL_2D"]
    assert inspection["problems"] == []
    assert "CONV_2D" in succeed("inspect", CNN)


def test_targets_and_kernels() -> None:
    assert {"host", "cortex-m4", "cortex-m55"} <= {
        t["name"] for t in json.loads(succeed("targets", "--json"))
    }
    layers = json.loads(succeed("kernels", CNN, "-t", "cortex-m4", "--json"))
    assert layers[0]["op"] == "conv2d"
    for layer in layers:
        chosen, *others = layer["candidates"]
        assert chosen["cost"] == chosen["variants"][0]["cost"]
        assert chosen["variants"][0]["reason"] is None
        assert all(len(candidate["variants"]) > 0 or candidate["reason"] for candidate in others)
    assert "requantize biasless, quads yes, group 4" in succeed("kernels", CNN)


def test_ir_prints_text() -> None:
    assert "clip(" in succeed("ir", CNN)
    # Its RELU clamps at the type's own lowest value.
    assert "clip(" not in succeed("ir", CNN, "--after", "fuse_ops")
    assert "clip" in succeed("ir", CNN, "--explain", "canonicalize_ops")
    assert "unknown pass 'nope'" in refuse("ir", CNN, "--after", "nope")


def test_help_is_fast() -> None:
    """Start-up imports nothing heavy."""
    code = "import sys, microfold.cli; print([m for m in ('numpy', 'jinja2', 'rich') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert result.stdout == "[]\n"


def test_errors_are_messages(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.tflite"
    garbage.write_bytes(b"\x00" * 100)
    assert "not a .tflite file" in refuse("build", garbage, "-o", tmp_path / "out")
    assert "cannot read" in refuse("build", tmp_path / "missing.tflite")
    assert "unknown target" in refuse("build", CNN, "-t", "cortex-m99")
    assert "optimize must be one of" in refuse("build", CNN, "--optimize", "fast")
    assert "section name" in refuse("build", CNN, "--weights-section", 'x"y')
    assert "--bogus" in refuse("build", CNN, "--bogus")
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8, 2), np.int8))
    assert "must hold int8[1,8,8,1]" in refuse("run", CNN, "--input", tmp_path / "x.npy")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "--bogus"], "--bogus"),
        (["build"], "Missing argument"),
        (["nope"], "nope"),
        (["verify", "x.tflite", "--runs", "0"], "--runs"),
    ],
)
def test_usage_errors(arguments: list[str], message: str) -> None:
    """Text that leads to the help; with --json, JSON as for every other error."""
    usage = refuse(*arguments)
    assert message in usage
    assert usage.startswith("Usage: ")
    result = microfold(*arguments, "--json")
    assert result.status == 2
    assert result.err == ""
    data = json.loads(result.out)
    assert message in data["error"]
    assert data["problems"] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        (b"", "not a readable .npy file"),
        (b"PK\x03\x04 no archive", "not a readable .npy file"),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr': 'q', '", "not a readable .npy file"),
        ("object", "not a readable .npy file"),
    ],
)
def test_input_files_that_are_none(tmp_path: Path, content: bytes | str | None, message: str) -> None:
    path = tmp_path / "x.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, np.array([{}, None]), allow_pickle=True)
    error = refuse("run", CNN, "--input", path)
    assert message in error
    assert "Errno" not in error
    assert "pickle" not in error


def test_unsupported_model_lists_all_problems(tmp_path: Path) -> None:
    model = MODELS / "lstm_fixed_f32.tflite"
    message = refuse("build", model, "-o", tmp_path / "out")
    assert "cannot be compiled" in message
    assert not (tmp_path / "out").exists()
    result = microfold("build", model, "-o", tmp_path / "out", "--json")
    assert result.status == 2
    assert json.loads(result.out)["problems"]


def test_a_failed_check_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that miscompiles is caught: here one that is told to turn minima into maxima."""
    wrapper = tmp_path / "cc"
    wrapper.write_text('#!/bin/sh\nexec gcc -Dcnn_int8_mf_clamp="(int8_t)~cnn_int8_mf_clamp" "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    result = microfold("verify", CNN, "--json")
    assert result.status in (1, 2), result.err


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "cannot write" in refuse("build", CNN, "-o", blocked)
