"""Generated files say where they come from, and refuse files of another build."""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from microfold import __version__, target
from microfold.codegen.emit import emit, emit_build
from microfold.compiler import compile_file, compile_graph
from microfold.errors import InputError
from microfold.options import OWN_LICENSE, Options
from tests.codegen.graphs import accumulator
from tests.command_line import succeed

CNN = Path(__file__).resolve().parents[1] / "models" / "made" / "cnn_int8.tflite"


def test_every_file_begins_with_its_license() -> None:
    for license in (OWN_LICENSE, "Apache-2.0 WITH LLVM-exception OR (MIT AND LicenseRef-Own)"):
        files = emit(compile_file(CNN, target.load("host"), Options(license=license)))
        assert len(files) == 5
        for text in files.values():
            assert text.split("\n")[0] == f"/* SPDX-License-Identifier: {license} */"


@pytest.mark.parametrize("license", ["", "MIT */ int x;", "a\nb", "MIT  "])
def test_a_license_is_an_expression(license: str) -> None:
    with pytest.raises(InputError, match="SPDX expression"):
        Options(license=license)


def test_the_header_names_the_model() -> None:
    header = emit(compile_file(CNN, target.load("host")))["cnn_int8.h"]
    digest = hashlib.sha256(CNN.read_bytes()).hexdigest()
    assert f'#define CNN_INT8_MODEL_SHA256 "{digest}"\n' in header
    assert f'#define CNN_INT8_MICROFOLD_VERSION "{__version__}"\n' in header
    assert "MODEL_SHA256" not in emit(compile_graph(accumulator(), target.load("host")))["accumulator.h"]


def test_the_command_makes_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--optimize", "size", "--io", "caller", "--name", "a_b", "--weights-section", ".w",
             "--single-file", "--disable", "fold_pad,fuse_ops", "--opt-level", "2", "--timing"]  # fmt: skip
    succeed("build", CNN, "-t", "cortex-m3", "-o", tmp_path / "one", *given)
    header = (tmp_path / "one" / "a_b.h").read_text()
    (stated,) = re.findall(r"Command: (.*?)\n \*\n", header, re.DOTALL)
    program, command, *words = shlex.split(stated.replace("\n *", ""))
    assert (program, command) == ("microfold", "build")
    monkeypatch.chdir(CNN.parent)
    succeed(command, *words, "-o", tmp_path / "two")
    assert "--timing" not in words
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_files_of_another_build_are_refused(tmp_path: Path) -> None:
    one, two = (
        emit_build(compile_file(CNN, target.load("host"), Options(io=io))) for io in ("arena", "caller")
    )
    assert one.id != two.id
    for foreign in one.files:
        for name, text in one.files.items():
            (tmp_path / name).write_text(two.files[name] if name == foreign else text)
        said = ""
        for name in ("cnn_int8.c", "cnn_int8_weights.c", "cnn_int8_helpers.h"):
            command = ["gcc", "-std=c99", "-fsyntax-only", name]
            said += subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stderr
        assert "are from different builds: use the files of one build" in said, foreign
