"""A release: the same bytes wherever it is built, models built by what is installed, a bill of materials."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tomli
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.needs import need_modules
from tools import release

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "models" / "made" / "cnn_int8.tflite"
# What a checkout has that a release does not; some would take long to copy.
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "site", "__pycache__", ".*_cache", ".hypothesis"
)


def copy(source: Path, folder: Path, mode: int, when: int) -> Path:
    """A copy with other permissions and times."""
    before = os.umask(mode)
    try:
        shutil.copytree(source, folder, ignore=LEFT_OUT, copy_function=shutil.copyfile)
    finally:
        os.umask(before)
    for path in folder.rglob("*"):
        os.utime(path, (when, when))
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_modules("build", "hatchling")
    folder = tmp_path_factory.mktemp("release")
    return release.build(copy(ROOT, folder / "source", 0o022, 1_700_000_000), folder / "dist")[1]


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """The Python of an environment with nothing but the release."""
    return release.install(wheel, wheel.parents[1] / "environment")


@pytest.mark.exhaustive
def test_the_bytes_are_the_same_everywhere(wheel: Path, tmp_path: Path) -> None:
    source = copy(wheel.parents[1] / "source", tmp_path / "else where", 0o077, 1_800_000_000)
    before = os.umask(0o077)
    try:
        again = release.build(source, tmp_path / "dist")
    finally:
        os.umask(before)
    for path in again:
        assert path.read_bytes() == (wheel.parent / path.name).read_bytes(), path.name


@pytest.mark.exhaustive
def test_wheel_builds_a_model(python: Path, tmp_path: Path) -> None:
    """Templates and targets come along."""
    command = [python.with_name("microfold"), "build", MODEL, "--target", "cortex-m4", "-o", "out"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out" / "cnn_int8.c").is_file()
    code = "import microfold, numpy as np; print(microfold.compile(r'%s')(np.zeros((1,8,8,1))).shape)"
    result = subprocess.run(
        [python, "-c", code % MODEL], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "(1, 10)", result.stderr


@pytest.mark.exhaustive
def test_bill_of_materials(python: Path, tmp_path: Path) -> None:
    """Its direct dependencies are those of the project, in the locked versions."""
    need_modules("cyclonedx_py")
    release.bill_of_materials(python, tmp_path / "bill.json")
    bill: dict[str, Any] = json.loads((tmp_path / "bill.json").read_text(encoding="utf-8"))
    assert bill["bomFormat"] == "CycloneDX"
    root = bill["metadata"]["component"]
    assert root["name"] == "microfold"
    versions = {part["bom-ref"]: (part["name"], part["version"]) for part in bill["components"]}
    (edges,) = [item for item in bill["dependencies"] if item["ref"] == root["bom-ref"]]
    found = dict(versions[ref] for ref in edges["dependsOn"])
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [Requirement(text) for text in project["dependencies"]]
    assert {name.lower() for name in found} == {
        item.name for item in needed if item.marker is None or item.marker.evaluate()
    }
    locked = (ROOT / ".ci" / "requirements" / "run.lock").read_text(encoding="utf-8")
    for name, version in versions.values():
        assert re.search(
            rf"^{re.escape(canonicalize_name(name))}=={re.escape(version)}\b", locked, re.MULTILINE
        ), name
