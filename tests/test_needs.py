"""Missing tools: skipped, named once; failures in continuous integration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import missing, need_modules, need_sanitizers, need_tools

ROOT = Path(__file__).resolve().parents[1]


def test_one_line_for_each_thing() -> None:
    assert missing(["needs clang, cmake", "needs clang", "the file is not there"]) == [
        "clang: 2 tests skipped; it is in Debian's package clang",
        "cmake: 1 tests skipped; it is in Debian's package cmake",
        "1 tests skipped for reasons of their own: -rs lists them",
    ]
    assert missing([]) == []


def test_what_is_missing_skips_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^needs arm-none-eabi-gcc, clang$"):
        need_tools("arm-none-eabi-gcc", "clang")
    with pytest.raises(pytest.skip.Exception, match=r"^needs no_such_module$"):
        need_modules("sys", "no_such_module")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs clang: Debian's package clang"):
        need_sanitizers("clang")


@pytest.mark.parametrize("compiler", ["arm-none-eabi-gcc", "clang-without-runtime"])
def test_a_compiler_without_its_libraries(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / compiler).write_text("#!/bin/sh\necho libc_nano.a; exit 1\n", encoding="utf-8")
    (tmp_path / compiler).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=compiler):
        need_sanitizers(compiler)


@pytest.mark.slow
def test_the_end_of_a_run_names_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["tests/kernels/depthwise_conv2d/test_pairs.py", "-k", "test_equals_reference"]
    environment = {**os.environ, "PATH": str(tmp_path), "CI": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "arm-none-eabi-gcc: 2 tests skipped; it is in Debian's package gcc-arm-none-eabi" in done.stdout
