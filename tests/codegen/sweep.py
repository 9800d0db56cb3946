"""Strict warnings in all the C that a set of models leads to: `python -m tests.codegen.sweep --models DIR`.

Every model is generated for every target, at every level. Most of their functions are the same: a program is
compiled if it has a function, a helper or a kind of line that none before had. So what is compiled is found,
not chosen, and grows with the models. Targets with the same features get the same C, compiled for each.

With `--objects`, programs become objects, in many ways and without warnings: see tests/codegen/matrix.py.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from msgspec import Struct

from microfold import target
from microfold.codegen.emit import emit
from microfold.codegen.functions import render_functions
from microfold.codegen.layout import wrap_code
from microfold.codegen.names import own_helpers
from microfold.codegen.stack_size import STACK_BOUND
from microfold.compiler import compile_file
from microfold.errors import MicrofoldError
from microfold.options import Options
from microfold.program import Program
from microfold.target import Target
from microfold.verification.measure import measure
from tests.codegen import matrix
from tests.codegen.builds import WARNINGS
from tests.codegen.matrix import arm_headers

# Of every model: all private names begin with it, and what is the same is to be found.
NAME = "net"
# GCC's plain -Wcast-align is silent on cores that load unaligned words.
GCC_WARNINGS = (*WARNINGS, "-Wcast-align=strict")
CPLUSPLUS_WARNINGS = ("-Wall", "-Wextra", "-Werror")
MODELS = Path(__file__).resolve().parents[1] / "models"
LEVELS = {
    "balanced": Options(),
    "size": Options(optimize="size", io="caller", single_file=True),
    "speed": Options(optimize="speed", single_file=True),
}
# Programs after which each way to compile an object has had its turn.
TURNS = 9
# Beside the usual -std=c99 -O2, by turns, for one core of each group.
VARIANTS = (
    ("-std=c11", "-O0"),
    ("-std=gnu99", "-O3"),
    ("-std=gnu17", "-Os", "-funsigned-char"),
    ("-std=c99", "-O2", "-DMF_NO_ASM"),
)
CORE_VARIANTS = (
    ("-std=c99", "-O2", "-mno-unaligned-access"),
    ("-std=c99", "-O1", "-ffast-math", "-fshort-enums"),
)
# Where code for a core with a floating-point unit is compiled without one, it says so.
WITHOUT_FPU = ("-std=c99", "-O2", "-mfloat-abi=soft", "-mno-unaligned-access", "-DMF_NO_FPU")


class Source(Struct, frozen=True):
    """The C of one program.

    Attributes:
        label: model, target and level.
        program: what it is generated from.
        files: name to text.
        units: what makes it worth compiling, if it is new.
    """

    label: str
    program: Program
    files: dict[str, str]
    units: frozenset[str]


def groups(names: Sequence[str]) -> list[list[Target]]:
    """Targets that get the same C, but for their names."""
    found: dict[object, list[Target]] = {}
    for loaded in map(target.load, names):
        found.setdefault((loaded.features, loaded.timing is None), []).append(loaded)
    return list(found.values())


def generate(path: Path, core: Target, level: str) -> Source | None:
    """The C of a model; None if it cannot be compiled, which others test."""
    try:
        program = compile_file(path, core, LEVELS[level], name=NAME)
    except MicrofoldError:
        return None
    files = emit(program)
    rest = "\n".join(files.values())
    units: set[str] = set()
    for function, rendered in render_functions(program).items():
        text = wrap_code(own_helpers(NAME, rendered.text))
        rest = rest.replace(text, "")
        # Which of a kernel's functions it is in this model does not matter.
        units.add(re.sub(rf"\b{rendered.name}(?=\b|_(layer|[a-z]))", function.name, text))
    units |= {_kind(line) for line in rest.split("\n")}
    return Source(f"{path.name} {core.name} {level}", program, files, frozenset(units))


def _kind(line: str) -> str:
    """A line without its numbers and the names that come from the model."""
    line = re.sub(r'"[^"]*"|/\*.*?(\*/|$)|^ \*.*', "", line)
    line = re.sub(r"[-+]?\b[0-9]\S*", "0", line)
    return re.sub(
        rf"\b(?!{NAME}_mf_|u?int|const|static|struct|sizeof|define|if|else|endif|mem)\w+", "n", line
    )


def sources(paths: Iterable[Path], core: Target, levels: Iterable[str]) -> Iterator[Source]:
    """The programs that bring something new, in order."""
    seen: set[str] = set()
    for level in levels:
        for path in paths:
            source = generate(path, core, level)
            if source is not None and not source.units <= seen:
                seen |= source.units
                yield source


def commands(cores: Sequence[Target], number: int) -> Iterator[list[str]]:
    """What the source with this number is compiled with: all cores; by turns, more ways for the first one."""
    for core in cores:
        arm = bool(core.board)
        ways = [("-std=c99", "-O2")]
        if core is cores[0]:
            variants = [*VARIANTS, *(CORE_VARIANTS if arm else ())]
            if arm and core.has("fpu") and not core.has("mve"):
                variants.append(WITHOUT_FPU)
            ways.append(variants[number % len(variants)])
        for way in ways:
            yield [core.compiler if arm else "gcc", *core.cpu_flags, *way, *GCC_WARNINGS, "-c"]
            clang = ["clang", "--target=arm-none-eabi", *arm_headers()] if arm else ["clang"]
            yield [*clang, *core.cpu_flags, *way, *WARNINGS, "-fsyntax-only"]
    # The C is C++, too.
    plus = cores[0].compiler.replace("gcc", "g++") if cores[0].board else "g++"
    yield [plus, *cores[0].cpu_flags, "-std=c++11", *CPLUSPLUS_WARNINGS, "-x", "c++", "-fsyntax-only"]


def check(source: Source, cores: Sequence[Target], number: int, folder: Path) -> list[str]:
    """What is wrong with a source: what compilers say, and a stack above what headers promise."""
    for name, text in source.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    names = sorted(name for name in source.files if name.endswith(".c"))
    said: list[str] = []
    for command in commands(cores, number):
        done = subprocess.run([*command, *names], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode or done.stderr:
            said.append(f"{source.label}: {' '.join(command)}\n{done.stderr[:2000]}")
    measured = measure(source.program) if cores[0].board else None
    if measured is not None and measured.stack is not None and measured.stack > STACK_BOUND:
        said.append(f"{source.label}: takes {measured.stack} bytes of stack; headers promise {STACK_BOUND}")
    return said


def sweep_objects(
    paths: Sequence[Path], cores: Sequence[Target], levels: Sequence[str]
) -> tuple[int, list[str]]:
    """Compile the programs that bring something new to objects; return their number, and all complaints.

    New assembly is compiled in every way. Anything else takes turns: compilers rarely fail there.
    """
    said: list[str] = []
    seen: set[str] = set()
    number = 0
    for number, source in enumerate(sources(paths, cores[0], levels), 1):
        new = matrix.statements(source.files) - seen
        seen |= new
        for core in cores:
            ways = list(matrix.commands(core))
            said += check_objects(source, ways if new else ways[number % TURNS :: TURNS])
    return number, said


def check_objects(source: Source, commands: Sequence[matrix.Command]) -> list[str]:
    """Compile the C files of a source that have functions; return the complaints."""
    with tempfile.TemporaryDirectory(prefix="microfold-sweep-") as folder:
        for name, text in source.files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        names = sorted(name for name, text in source.files.items() if name.endswith(".c") and "(" in text)
        said = [matrix.compile_objects(command, names, Path(folder)) for command in commands]
    return [f"{source.label}: {each}" for each in said if each]


def sweep(paths: Sequence[Path], cores: Sequence[Target], levels: Sequence[str]) -> tuple[int, list[str]]:
    """Number of programs that were compiled, and all that compilers said."""
    said: list[str] = []
    number = 0
    for number, source in enumerate(sources(paths, cores[0], levels), 1):
        with tempfile.TemporaryDirectory(prefix="microfold-sweep-") as folder:
            said += check(source, cores, number, Path(folder))
    return number, said


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--models", type=Path, action="append", help="folders of .tflite files; default: bundled"
    )
    parser.add_argument("--targets", nargs="+", default=target.available())
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS))
    parser.add_argument("--every", type=int, default=1, help="only every n-th model")
    parser.add_argument("--objects", action="store_true", help="compile to objects in every way")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    tools = ("gcc", *matrix.TOOLS) if options.objects else ("gcc", "clang", "arm-none-eabi-gcc")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        parser.error(f"not on the PATH: {', '.join(missing)}")
    folders = options.models or [MODELS]
    paths = sorted(path for folder in folders for path in folder.rglob("*.tflite"))[:: options.every]
    failed = False
    with ProcessPoolExecutor(options.jobs) as pool:
        running = {
            pool.submit(sweep_objects if options.objects else sweep, paths, cores, options.levels): ", ".join(
                core.name for core in cores
            )
            for cores in groups(options.targets)
        }
        for done in as_completed(running):
            count, said = done.result()
            failed |= bool(said)
            print(f"{running[done]}: {count} programs of {len(paths)} models, {len(said)} complaints")
            print("\n".join(said), end="\n" if said else "", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
