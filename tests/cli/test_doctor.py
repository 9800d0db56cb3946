"""`microfold doctor` names what is there, and how to get what is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import tomli
from packaging.requirements import Requirement

from microfold.cli import installation
from tests.command_line import microfold, succeed
from tests.needs import CROSS_TOOLS, need_tools

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_packages_and_extras_are_those_of_the_project() -> None:
    project = tomli.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    needed = {Requirement(text).name for text in project["dependencies"]}
    assert {*installation.PACKAGES, "tomli"} == needed
    groups = {"oracle", "test", "lint", "release", "dev", "docs", "build"}  # of developers
    assert set(installation.EXTRAS) == set(project["optional-dependencies"]) - groups
    for extra, (distribution, *_) in installation.EXTRAS.items():
        assert distribution in {Requirement(t).name for t in project["optional-dependencies"][extra]}


def test_what_is_there_has_a_version_and_a_path() -> None:
    need_tools("cc", *CROSS_TOOLS)
    parts = {part["name"]: part for part in json.loads(succeed("doctor", "--json"))}
    for name in ("Python", "numpy", "C compiler", *CROSS_TOOLS, "newlib"):
        assert parts[name]["version"][0].isdecimal() and Path(parts[name]["path"]).exists(), name
    assert parts["numpy"]["required"] and not parts["C compiler"]["required"]
    assert "qemu-system-arm" in succeed("doctor")


def test_what_is_missing_has_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "qemu-system-arm"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "'")
    monkeypatch.setattr(sys, "platform", "linux")
    text = succeed("doctor")
    assert "arm-none-eabi-gcc is missing: apt install gcc-arm-none-eabi" in text
    assert "C compiler is missing: apt install gcc" in text
    assert f"qemu-system-arm is missing: {broken} --version fails: apt install qemu-system-arm" in text


def test_without_the_minimum_the_status_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    result = microfold("doctor")
    assert result.status == 1 and "highspy is missing: pip install highspy" in result.out
