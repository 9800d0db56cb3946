"""Targets: features imply features, mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold import target
from microfold.errors import TargetError

PIPELINE = 'features = []\n[pipeline]\nsource = "a guess"\nerror = 40\n'


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
        ('features = ["rv32imc"]', r"such as RISC-V, use features = \[\]"),
        ('features = []\nspeed = "fast"', "unknown key speed; known are features, name"),
        ("features = 3", "must be a list"),
        ("features = [3]", r"features\[0\] must be a text; it is 3"),
        ('name = "x"', "features is missing; it must be a list of features"),
        ("features = [", "not a readable TOML"),
        (f'{PIPELINE}apart = [["float", "load"]]', "pipeline.apart must have two classes and cycles"),
        (f'{PIPELINE}apart = [["float", "water", 3]]', "unknown 'water'"),
        (f'{PIPELINE}leads = [["float", "load", 0]]', "cycles of pipeline.leads must be up to 1000"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(TargetError, match=message):
        target.load(str(path))


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('features = 3\ncompiler = ""\nboard = true\n[timing]\nalu = -1\n[memory.a]\nsize = 0\n')
    with pytest.raises(TargetError) as error:
        target.load(str(path))
    assert str(error.value) == (
        "own.toml: features must be a list of features, which may be empty; it is 3; "
        "compiler must be the name of an executable; it is ''; board must be a text; it is True; "
        "timing.source is missing; timing.alu must be a number of cycles, 0 to 1000; it is -1; "
        "memory.a.size must be a number of bytes, 1 to 4294967296; it is 0; "
        "memory.a.cycles is missing; it must be a number of cycles for each access, 1 to 10000; "
        "memory.a.use is missing; it must be some of data, constants, code, each once"
    )


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


DTCM = "[memory.dtcm]\nsize = 65536\ncycles = 1\n"
FLASH = "[memory.flash]\nsize = 1048576\ncycles = 6\nuse = ['constants']\n"


def test_memories(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        f"features = []\n{FLASH}{DTCM}use = ['data', 'constants']\nload = 'flash'\nregion = 'RAM_D1'"
    )
    flash, dtcm = target.load(str(path)).memories
    assert (flash.size, flash.cycles, flash.use, flash.load, flash.region) == (
        1 << 20,
        6,
        ("constants",),
        "",
        "FLASH",
    )
    assert (dtcm.load, dtcm.region, dtcm.section("data")) == ("flash", "RAM_D1", ".dtcm.data")
    assert not any(target.load(name).memories for name in target.available())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory = 3", r"memory must be tables, \[memory.NAME\]; it is 3"),
        ("[memory]\ndtcm = 3", r"memory.dtcm must be a table; it is 3"),
        ("[memory.DTCM]", r"a key of memory must be up to 31 small letters.*'DTCM'"),
        ("[memory.data]", r"be none of text, data, .*; it is 'data'"),
        (DTCM, r"memory.dtcm.use is missing; it must be some of data, constants, code"),
        (
            f"{DTCM}use = []",
            r"memory.dtcm.use must be some of data, constants, code, each once; it is a list",
        ),
        (
            f"{DTCM}use = [['data']]",
            r"memory.dtcm.use\[0\] must be one of code, constants, data; it is a list",
        ),
        (f"{DTCM}use = ['data', 'data']", r"each once"),
        (f"{DTCM}use = ['data']\nspeed = 1", r"unknown key memory.dtcm.speed; known are size, cycles"),
        ("[memory.a]\nsize = true", r"memory.a.size must be a number of bytes, 1 to 4294967296; it is True"),
        (
            "[memory.a]\nsize = 0\ncycles = 1\nuse = ['data']",
            r"memory.a.size must be a number of bytes, 1 to 4294967296; it is 0",
        ),
        (
            "[memory.a]\nsize = 8\ncycles = 0\nuse = ['data']",
            r"memory.a.cycles must be a number of cycles for each access, 1 to 10000; it is 0",
        ),
        (f"{DTCM}use = ['data']\nregion = 'A B'", r"memory.dtcm.region must be a name of letters"),
        (f"{DTCM}use = ['data']\nregion = 'FLASH'\n{FLASH}", r"memory.dtcm and memory.flash are both FLASH"),
        (
            f"{DTCM}use = ['constants']\nload = 'x'",
            r"load must name another memory; it is 'x'; memories are dtcm",
        ),
        (f"{DTCM}use = ['constants']\nload = 'dtcm'", r"load must name another memory"),
        (f"{DTCM}use = ['data']\nload = 'flash'\n{FLASH}", r"its use is data alone: remove load"),
        (
            f"{DTCM}use = ['code']\nload = 'b'\n[memory.b]\nsize = 8\ncycles = 1\nuse = ['data']",
            r"used for data",
        ),
    ],
)
def test_mistakes_in_memories_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f"features = []\n{text}" if "memory = " not in text else f"{text}\nfeatures = []")
    with pytest.raises(TargetError, match=message):
        target.load(str(path))
