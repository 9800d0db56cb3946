"""Commands that are wrong: each is refused in a line that names the rule, and, asked for it, as JSON."""

from __future__ import annotations

import struct
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from tests.cli.test_passes import CLIPS, CNN, SCALED
from tests.command_line import microfold, refuse, refuse_as_json

BAD_COMMANDS = [
    (["inspect", ""], "it is a folder"),
    (["inspect", "/dev/zero"], "it is a device"),
    (["inspect", "a" * 5000], "File name too long"),
    (["inspect", CNN / "x"], "Not a directory"),
    (["build", CNN, "-t", ""], "unknown target ''"),
    (["build", CNN, "-t", "missing.toml"], "must exist; 'missing.toml' does not"),
    (["build", CNN, "-o", CNN], "it is not a folder"),
    (["build", CNN, "-o", "a" * 300], "File name too long"),
    (["build", CNN, "-o", "/" + "a/" * 2500], "File name too long"),
    (["build", CNN, "--flash", "0"], "the smallest kernels need"),
    (["build", CNN, "--ram", "0"], "arena and state must fit 0 bytes of RAM"),
    (["kernels", CNN, "--ram", "9"], "the kernel of least memory"),
    (["build", CNN, "--external-flags", "'unclosed"], "No closing quotation"),
    (["build", CNN, "--external-flags", "a\0"], "external_flags must be printable"),
    (["build", CNN, "--kernel", "softmax=nope"], "no kernel of softmax has this name; possible:"),
    (["build", CNN, "--external", "nope"], "available: cmsis-nn"),
    (["build", CNN, "--input-shape", "x=99999999999999999999"], "NAME=1,49,10,1"),
    (["kernels", CNN, "--flash", "0"], "the smallest kernels need"),
    (["opt", CNN, "-o", ""], "must have a file name"),
    (["opt", CNN, "-o", CNN.parent], "is a folder"),
    (["opt", CNN, "--dump-ir", CNN], "it is not a folder"),
    (["opt", CNN, "--passes", ""], "expected a word"),
    (["bench", CNN, "-t", "host"], "target with a board; host has none"),
    (["run", CNN, "--input", "/dev/zero"], "it is a device"),
    (["run", CNN, "--input", CNN], "not a readable .npy file"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD_COMMANDS, ids=[f"{m}-{i}" for i, (_, m) in enumerate(BAD_COMMANDS)]
)
def test_commands(arguments: list[object], message: str) -> None:
    assert message in refuse(*arguments)
    assert message in refuse_as_json(*arguments)["error"]


TARGETS = [
    ("", "features is missing; it must be a list of features"),
    ("features = 3", "features must be a list of features, which may be empty; it is 3"),
    ("features = " + "[" * 9000, "nested too deeply"),
    ('features = [["dsp"]]', "features[0] must be a text; it is a list"),
    ('features = ["thumb1", "dsp"]', "thumb1 (Armv6-M) must be the only feature"),
    ('features = ["fpu", "thumb1"]', "thumb1 (Armv6-M) must be the only feature"),
    ('features = []\nname = "*/ \\n#error"', "name must be 1 to 64 letters"),
    ('features = []\nname = "a*/"', "name must be 1 to 64 letters"),
    ('features = []\nname = "a\\n"', "name must be 1 to 64 letters"),
    ('features = []\nname = ""', "name must be 1 to 64 letters"),
    ('features = []\ncpu_flags = ["a\\u0000b"]', "cpu_flags must be printable"),
    ('features = []\ndescription = "a\\nb"', "description must be printable"),
    ('features = []\ncompiler = ""', "compiler must be the name of an executable; it is ''"),
    ('features = []\n[timing]\nsource = "x\\u007f"', "timing.source must be printable"),
    ('features = []\n[timing]\nsource = "x"\nalu = 1e9', "a number of cycles"),
    ('features = []\n[timing]\nsource = "x"\nalu = 99999999999999999999', "0 to 1000"),
    ('features = []\n[timing]\nsource = "x"\nload = inf', "it is inf"),
    ('features = []\n[timing]\nsource = "x"\n[timing.branches]\ntaken = 3', "unknown key timing.branches"),
    ("features = []\n#" + "x" * (1 << 20), "the limit is 1,048,576 bytes"),
]


@pytest.mark.parametrize(("text", "message"), TARGETS, ids=[str(i) for i in range(len(TARGETS))])
def test_targets(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    error = refuse("build", CNN, "-t", path, "-o", tmp_path / "out")
    assert message in error
    assert len(error) < 400
    assert not (tmp_path / "out").exists()


def test_a_target_whose_flags_select_no_core(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('features = ["dsp"]')
    error = refuse("build", CNN, "-t", path, "-o", tmp_path / "out")
    assert "cpu_flags of own (none) must match its features (dsp, thumb2)" in error
    assert not (tmp_path / "out").exists()
    path.write_text('features = ["dsp"]\ncompiler = "missing-gcc"')
    assert microfold("build", CNN, "-t", path, "-o", tmp_path / "out").status == 0


TEXTS = [
    ("", "expected 'graph'"),
    (SCALED.replace("[1.0, 2.0, 3.0, 4.0]", "dense<éé==>"), "not base64"),
    (SCALED.replace("[1.0, 2.0, 3.0, 4.0]", "dense<AAA>"), "not base64"),
    (CLIPS.replace("[2]", f"[{'9' * 5000}]"), "expected an integer"),
    (CLIPS.replace("minimum=0.0", "minimum=" + "(" * 9000), "expected a number"),
    (CLIPS.replace("%x", '%"\\x"'), "not a JSON string"),
    (CLIPS + "\0", "unexpected character"),
]


@pytest.mark.parametrize(("text", "message"), TEXTS, ids=[str(i) for i in range(len(TEXTS))])
def test_text_forms(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "graph.mf").write_text(text, encoding="utf-8")
    assert message in refuse("ir", tmp_path / "graph.mf")


def npy(shape: str, descr: str = "'|i1'", fortran: bool = False, data: bytes = bytes(64)) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    header = header.ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


ARRAYS = [
    (npy("(1099511627776, 1, 8, 8, 1)"), "70,368,744,177,664 bytes; got 64"),
    (npy(f"({'9' * 30}, 1, 8, 8, 1)"), "got 64"),
    (npy("(1, 8, 8, 1)", data=bytes(63)), "64 bytes; got 63"),
    (npy("(1, 8, 8, 1)", data=bytes(65)), "64 bytes; got 65"),
    (npy("(0, 1, 8, 8, 1)", data=b""), "must hold int8[1,8,8,1], or several stacked"),
    (npy("(8, 8)"), "must hold int8[1,8,8,1]"),
    (npy("()"), "must hold int8[1,8,8,1]"),
    (npy("(-1, 8, 8, 1)"), "not a readable .npy file"),
    (npy("(True, 8, 8, 1)"), "not a readable .npy file"),
    (npy("(1, 8, 8, 1)", "'|S1'"), "must hold int8[1,8,8,1]"),
    (npy("(1, 8, 8, 1)", "'|O'"), "it holds Python objects"),
    (npy("(1, 8, 8, 1)", "[('a', '|i1')]"), "must hold int8[1,8,8,1]"),
    (npy("__import__('os')"), "not a readable .npy file"),
    (npy("(1, 8, 8, 1)")[:60], "not a readable .npy file"),
    (b"\x93NUMPY\x03\x00" + b"\xff" * 4, "not a readable .npy file"),
]


@pytest.mark.parametrize(("content", "message"), ARRAYS, ids=[str(i) for i in range(len(ARRAYS))])
def test_arrays(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    assert message in refuse("run", CNN, "--input", tmp_path / "x.npy")


def test_arrays_of_other_orders_are_read(tmp_path: Path) -> None:
    from microfold import target
    from microfold.cli.inputs import load_inputs
    from microfold.compiler import compile_graph
    from microfold.ir.text import parse

    program = compile_graph(parse(SCALED.replace("float32[1,2]", "float32[3,2]")), target.load("host"))
    x = np.arange(24).reshape(4, 3, 2)
    for stored in (x.astype(">f4"), np.asfortranarray(x.astype(np.float32)), x.astype(np.float32)):
        np.save(tmp_path / "x.npy", stored)
        calls = load_inputs([tmp_path / "x.npy"], program)
        np.testing.assert_array_equal(np.stack([call[0] for call in calls]), x)
        assert calls[0][0].dtype == np.float32


@pytest.mark.parametrize(
    ("compiler", "message"),
    [
        ("gcc -m32 'unclosed", "No closing quotation"),
        ("/nonexistent", "not on PATH"),
        ("/tmp", "not on PATH"),
        ("false", "false failed (1)"),
        ("true", "true must make code for this machine"),
    ],
)
def test_compilers(monkeypatch: pytest.MonkeyPatch, compiler: str, message: str) -> None:
    monkeypatch.setenv("CC", compiler)
    assert message in refuse("verify", CNN)


def test_a_defect_is_a_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("something")

    monkeypatch.setattr("microfold.reporting.inspection.inspect_model", broken)
    result = microfold("inspect", CNN)
    assert result.status == 3
    assert "internal error in microfold" in result.err
    assert "RuntimeError" in result.err
    assert "Traceback" not in result.err
    monkeypatch.setenv("MICROFOLD_TRACEBACK", "1")
    assert "Traceback" in microfold("inspect", CNN).err
    assert capsys.readouterr() == ("", "")


QEMU = {
    "exit 0": "must write results.bin, but it ended successfully without",
    "kill -9 $$": "ended with status -9",
    "echo rubbish > results.bin": "the simulation must write",
}


@pytest.mark.parametrize("script", QEMU)
def test_simulators_that_give_no_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    from tests.needs import need_tools

    need_tools("arm-none-eabi-gcc")
    (tmp_path / "qemu-system-arm").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "qemu-system-arm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "clips.mf").write_text(dedent(CLIPS))
    assert QEMU[script] in refuse("bench", tmp_path / "clips.mf", "-t", "cortex-m3")
