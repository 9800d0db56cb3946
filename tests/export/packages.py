"""Packages of bundled models, made without the command line, which would measure each of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from microfold import compiler, target
from microfold.codegen.emit import emit_build
from microfold.codegen.provenance import Build
from microfold.export.formats import find
from microfold.export.package import About, make_package
from microfold.options import Options
from microfold.program import Program
from microfold.reporting.data import build_report
from microfold.reporting.schema import BuildReport
from tests.codegen.toolchain import run

ROOT = Path(__file__).resolve().parents[2]
STUBS = Path(__file__).parent / "stubs"
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
GOOD = "all outputs are the reference's\n"


@cache
def compiled(model: Path, core: str, options: Options) -> Program:
    return compiler.compile_file(model, target.load(core), options, name=model.stem)


@cache
def built(program: Program) -> tuple[Build, BuildReport]:
    return emit_build(program), build_report(program, None)


def files_of(
    kind: str,
    core: str = "host",
    model: Path = DIGITS,
    options: Options | None = None,
    about: About | None = None,
) -> dict[str, str | bytes]:
    """The files of a package, without its report."""
    program = compiled(model, core, options or Options())
    return make_package(program, *built(program), find(kind), about or About())


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return folder


def sources_of(kind: str, folder: Path) -> list[Path]:
    """The sources of the library, without the example."""
    return sorted((folder / find(kind).sources).glob("*.c"))


def example_of(
    kind: str, folder: Path, entry: Sequence[Path], flags: Sequence[str] = ("-w",), compiler: str = "cc"
) -> Path:
    """The example, compiled for this machine with its library.

    Args:
        entry: the file with the example's main function, and stubs for it.
    """
    layout = find(kind)
    includes = [f"-I{folder / name}" for name in (layout.headers, layout.sources, layout.example)]
    example = sorted((folder / layout.example).glob("*_example.c"))
    command = [compiler, *flags, *includes, f"-I{STUBS}"]
    objects: list[Path] = []
    for number, source in enumerate([*sources_of(kind, folder), *example, *entry]):
        objects.append(folder / f"{number}.o")
        language = ["-x", "c++"] if source.suffix in (".ino", ".cpp") else []
        run([*command, *language, "-c", source, "-o", objects[-1]])
    run(
        [
            "c++" if any(path.suffix != ".c" for path in entry) else compiler,
            *objects,
            "-lm",
            "-o",
            folder / "check",
        ]
    )
    return folder / "check"
