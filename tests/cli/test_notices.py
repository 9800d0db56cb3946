"""What commands take without being told is said; what they are told is understood or refused in words."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from microfold.cli.app import COMMANDS
from microfold.cli.sizes import parse_size
from tests.command_line import microfold, refuse, refuse_as_json, succeed

SINE = Path(__file__).resolve().parents[2] / "examples" / "sine" / "sine.tflite"


def test_no_command_has_a_target_of_its_own() -> None:
    """Those with the option ask `choose_target`; diff takes that of the dump, and opt makes
    no code."""
    functions = {name: getattr(import_module(f"microfold.cli.{name}"), name) for name in COMMANDS}
    targets = {
        name: parameters["target"].default
        for name, function in functions.items()
        if "target" in (parameters := inspect.signature(function).parameters)
    }
    assert len(targets) >= 9 and set(targets.values()) == {None}
    asking = {
        name
        for name, f in functions.items()
        if "choose_target(" in inspect.getsource(import_module(f.__module__))
    }
    assert asking == targets.keys() - {"diff", "opt"}


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        (("build", SINE), "host"),
        (("export", SINE, "-f", "make"), "host"),
        (("kernels", SINE), "cortex-m4"),
        (("report", SINE), "cortex-m4"),
    ],
)
def test_the_target_that_is_taken_is_said(
    command: tuple[object, ...], taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (said,) = microfold(*command).err.splitlines()
    assert f"no --target given: using {taken}" in said and "`microfold targets`" in said
    if command[0] == "build":
        assert microfold(*command, "-t", taken).err == ""
        assert microfold(*command, "--json").err == ""


def test_a_name_that_is_not_taken_as_it_is(tmp_path: Path) -> None:
    command = ("build", SINE, "-t", "host", "-o", tmp_path)
    assert "C names start with m_int, not 'int'" in microfold(*command, "--name", "int").err
    assert microfold(*command, "--name", "kws").err == microfold(*command).err == ""
    two = ("build", SINE, SINE, "-t", "host", "-o", tmp_path, "--name", "My-Models")
    assert "C names start with my_models" in microfold(*two).err


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("5120", 5120), ("5K", 5120), ("5k", 5120), ("5KB", 5120), ("5 KiB", 5120), ("2M", 1 << 21)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["5Q", "-1", "5.5K", "K", "", "5 K B"])
def test_what_is_no_size(text: str, tmp_path: Path) -> None:
    command = ("build", SINE, "-t", "host", "-o", tmp_path / "out", "--ram", text)
    message = refuse_as_json(*command)["error"]
    assert "a size must be a whole number of bytes, or of K, KB or KiB" in message and repr(text) in message
    assert not (tmp_path / "out").exists()


def test_a_size_with_a_unit_is_a_limit(tmp_path: Path) -> None:
    text = refuse("build", SINE, "-t", "host", "-o", tmp_path, "--flash", "0K")
    assert "constants and code must fit 0 bytes of flash" in text


def test_texts_go_to_the_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = succeed("report", SINE, "-t", "host", "-o", "-")
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert succeed("opt", SINE, "-t", "host", "-o", "-").startswith("graph @sine")
    assert "--output - and --json would both write" in refuse_as_json("report", SINE, "-o", "-")["error"]
    assert "--output - and --explain would both write" in refuse(
        "opt", SINE, "-o", "-", "--explain", "fuse_ops"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command",
    [
        ("build", SINE),
        ("export", SINE, "-f", "make"),
        ("run", SINE, "--input", "x.npy"),
        ("diff", SINE, "dump.bin"),
    ],
    ids=lambda command: command[0],
)
def test_other_outputs_need_a_name(
    command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "standard output ('-'); pass a name" in refuse_as_json(*command, "-o", "-")["error"]
    assert not list(tmp_path.iterdir())


def test_shapes_of_inputs_are_those_of_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 1), np.float64))
    text = refuse("run", SINE, "--input", tmp_path / "x.npy")
    assert "several stacked along a new first axis: [N,1,1]; got float64[1, 1]" in text
