"""Targets: features imply features, mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold import target
from microfold.errors import TargetError


def test_shipped_targets_load() -> None:
    names = target.available()
    cores = ("0plus", "3", "4", "7", "33", "55", "85")
    lesser = ("4-nofp", "7-nofp", "33-nofp", "33-nodsp", "55-nofp", "55-nomve")
    assert {f"cortex-m{n}" for n in (*cores, *lesser)} | {"host"} <= set(names)
    for name in names:
        assert target.load(name).name == name


def test_features_imply_features() -> None:
    assert target.load("cortex-m55").features == {"mve_fp", "mve", "dsp", "thumb2", "fpu"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('features = ["neon"]', "unknown feature 'neon'"),
        ('features = []\nspeed = "fast"', "unknown key 'speed'"),
        ("features = 3", "must be a list"),
        ("features = [3]", "list of strings"),
        ('name = "x"', "needs a list of features"),
        ("features = [", "not a readable TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(TargetError, match=message):
        target.load(str(path))


def test_own_target(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('features = ["dsp"]\ncompiler = "armclang"\n')
    own = target.load(str(path))
    assert own.name == "own"
    assert own.features == {"dsp", "thumb2"}


def test_unknown_names_and_paths() -> None:
    with pytest.raises(TargetError, match=r"known are .*cortex-m4"):
        target.load("cortex-m99")
    with pytest.raises(TargetError, match="does not"):
        target.load("no/such/file.toml")
    with pytest.raises(TargetError, match="unknown target"):
        target.load("../targets/host")
