"""Compiling and running generated C with the host's tools."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.codegen.builds import STRICT
from tests.needs import need_tools


def run(command: Sequence[str | Path], cwd: Path | None = None) -> str:
    """Standard output of a command that must succeed."""
    result = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write files; the paths of the C sources among them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(folder / name for name in files if name.endswith(".c"))


def objects(
    folder: Path, files: Mapping[str, str], flags: Sequence[str] = ("-O2",), compiler: str = "cc"
) -> list[Path]:
    """Object files of the C sources."""
    need_tools(compiler)
    found: list[Path] = []
    for source in write(folder, files):
        found.append(source.with_suffix(".o"))
        run([compiler, *STRICT, *flags, "-c", source, "-o", found[-1]])
    return found


def symbols(path: Path, options: Sequence[str] = ()) -> dict[str, str]:
    """Symbols of an object file: name to the letter that nm gives it."""
    need_tools("nm")
    lines = run(["nm", *options, path]).splitlines()
    return {fields[-1]: fields[-2] for fields in map(str.split, lines)}


def sections(path: Path) -> dict[str, int]:
    """Sizes of an object file's sections."""
    need_tools("objdump")
    return {
        name: int(size, 16)
        for name, size in re.findall(
            r"^ *\d+ (\S+) +([0-9a-f]+) ", run(["objdump", "-h", path]), re.MULTILINE
        )
    }


def call_graph(folder: Path, files: Mapping[str, str]) -> dict[str, set[str]]:
    """Which function calls which, by GCC's account; an indirect call has the callee ``__indirect_call``."""
    compiler = os.environ.get("GCC", "gcc")
    need_tools(compiler)  # only GCC writes call graphs
    objects(folder, files, ("-O0", "-fcallgraph-info"), compiler)
    graph: dict[str, set[str]] = {}
    for path in folder.glob("*.ci"):
        for source, callee in re.findall(r'sourcename: "([^"]+)" targetname: "([^"]+)"', path.read_text()):
            graph.setdefault(source.split(":")[-1], set()).add(callee.split(":")[-1])
    return graph
