"""The locked versions are of what `pyproject.toml` asks for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomli
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = ("3.10", "3.11", "3.12")


def environment(python: str) -> dict[str, str]:
    linux = {"sys_platform": "linux", "platform_machine": "x86_64", "os_name": "posix"}
    versions = {"python_version": python, "python_full_version": f"{python}.9"}
    return {**default_environment(), **linux, **versions}


def locked(name: str, python: str) -> dict[str, str]:
    """Versions in a lock, for one Python on Linux."""
    text = (ROOT / ".ci" / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    entries = [Requirement(line) for line in re.findall(r"^([a-z].*?)(?: \\)?$", text, re.MULTILINE)]
    assert text.count("--hash=sha256:") >= len(entries)
    return {
        canonicalize_name(entry.name): str(entry.specifier).removeprefix("==")
        for entry in entries
        if entry.marker is None or entry.marker.evaluate(environment(python))
    }


def asked(name: str) -> list[str]:
    project = PROJECT["project"]
    if name == "run":
        return project["dependencies"]
    if name == "build":
        return PROJECT["dependency-groups"]["build"]
    optional: dict[str, list[str]] = project["optional-dependencies"]
    if name == "docs":
        return [*project["dependencies"], *optional["docs"]]
    extras = [*(items for extra, items in optional.items() if extra != "docs"), project["dependencies"]]
    return [item for extra in extras for item in extra if not item.startswith("microfold[")]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["run", "build", "dev", "docs"])
def test_the_lock_has_what_is_asked_for(name: str, python: str) -> None:
    versions = locked(name, python)
    for requirement in map(Requirement, asked(name)):
        if requirement.marker is None or requirement.marker.evaluate(environment(python)):
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("python", PYTHONS)
def test_the_locks_agree(python: str) -> None:
    everything = locked("dev", python)
    for name in ("run", "build"):
        assert locked(name, python).items() <= everything.items()
    docs = locked("docs", python)
    assert {name: version for name, version in docs.items() if everything.get(name, version) != version} == {}


def test_what_builds_the_wheel_is_one_version() -> None:
    (backend,) = PROJECT["build-system"]["requires"]
    assert backend in PROJECT["dependency-groups"]["build"]
    assert "==" in backend
