"""Flash and stack of generated C, compiled and linked by the target's compiler, without running it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from microfold.codegen.emit import emit, stand_ins
from microfold.codegen.provenance import Build
from microfold.codegen.shared import Shared
from microfold.errors import ToolError
from microfold.program import Program
from microfold.simulate.memory import placed_sections
from microfold.simulate.toolchain import THUMB_ARCHITECTURE
from microfold.support.elf import ARM, read_elf
from microfold.support.scratch import scratch_folder
from microfold.support.tools import COMPILE_SECONDS, run_tool
from microfold.target import Target
from microfold.verification.stack import deepest

# C libraries of firmware for Arm. The first one that links is used to measure flash.
_C_LIBRARIES = (("--specs=nano.specs",), ())
_TOOL_SECONDS = 60.0


class Measurement(Struct, frozen=True):
    """Sizes of the compiled and linked code in bytes, at the options' level of optimisation.

    Attributes:
        code: instructions and layer descriptions in the model's files, without weights.
        library: functions and constants from the C library, libm and the compiler's library; None if the code
            was not linked.
        padding: padding that the linker inserts for alignment; None if the code was not linked.
        stack: upper bound of the stack of any function of the model, below its caller's stack pointer. It
            includes library functions of newlib and newlib-nano, but no interrupts. None if it is unknown,
            because the code was not linked or no disassembler was found.
    """

    code: int
    library: int | None
    padding: int | None
    stack: int | None


def measure(program: Program, files: Mapping[str, str] | None = None) -> Measurement | None:
    """Compile and link a program for its target, and measure the result.

    Args:
        files: C files of the program, if they are already generated.

    Returns:
        None if the compiler is not on PATH, has no C library, finds no headers of a library that the code
        calls, or does not write ELF files.

    Raises:
        ToolError: the compiler rejects the code.
    """
    without_trace = program.without_trace
    if files is None or without_trace is not program:
        files = emit(without_trace)
    program = without_trace
    found = _measure([program], {**files, **stand_ins(program)})
    if found is None:
        return None
    weights = program.weight_bytes if program.options.weights == "arrays" else 0
    (stack,) = found.stacks
    return Measurement(sum(found.files.values()) - weights, found.library, found.padding, stack)


class GroupMeasurement(Struct, frozen=True):
    """Sizes of several programs with shared kernels, linked together, in bytes.

    Attributes:
        models: code of each program's own files.
        kernels: code of the shared files.
        library, padding: totals for all programs, as in `Measurement`.
        stacks: stack of each program's functions, as in `Measurement`.
    """

    models: tuple[int, ...]
    kernels: int
    library: int | None
    padding: int | None
    stacks: tuple[int | None, ...]

    @property
    def stack(self) -> int | None:
        """Stack that is enough for each program, in bytes; None if the stack of any is unknown."""
        known = [stack for stack in self.stacks if stack is not None]
        return max(known) if len(known) == len(self.stacks) else None


def measure_group(shared: Shared, build: Build) -> GroupMeasurement | None:
    """Compile and link programs of one build, and measure them; results and errors as for `measure`.

    Args:
        build: files of the programs.
    """
    programs = shared.programs
    files = dict(build.files)
    for program in programs:
        files |= stand_ins(program)
    found = _measure(programs, files)
    if found is None:
        return None
    own = tuple(
        sum(found.files.get(f"{program.name}{part}.o", 0) for part in ("", "_weights"))
        - program.weight_bytes
        + shared.constants.read_by(program.name)
        for program in programs
    )
    return GroupMeasurement(
        own,
        sum(found.files.values()) - sum(own) - shared.weight_bytes,
        found.library,
        found.padding,
        found.stacks,
    )


class _Found(Struct, frozen=True):
    """Flash in bytes by object file, and the other sizes as in `GroupMeasurement`."""

    files: Mapping[str, int]
    library: int | None
    padding: int | None
    stacks: tuple[int | None, ...]


def _measure(programs: Sequence[Program], files: Mapping[str, str]) -> _Found | None:
    """Compile and link C files, and measure the result.

    Args:
        programs: programs of the files, for one target with the same options.
    """
    unknown = (None,) * len(programs)
    program = programs[0]
    compiler = shutil.which(program.target.compiler)
    if compiler is None:
        return None
    with scratch_folder() as folder:
        given = {name for each in programs for name in stand_ins(each)}
        sources = sorted(name for name in files if name.endswith(".c") and name not in given)
        # Functions of the firmware are linked to resolve symbols, but not counted.
        own = sorted(name for name in given if name.endswith("_prefetch.c"))
        linked_objects = _compile(programs, files, [*sources, *own], compiler, folder)
        if linked_objects is None:
            return None
        objects = linked_objects[: len(sources)]
        read = {name: read_elf(folder / name) for name in objects}
        elves = {name: file for name, file in read.items() if file is not None}
        if len(elves) != len(read):
            return None
        sizes = {name: file.flash for name, file in elves.items()}
        if any(file.machine != ARM for file in elves.values()):
            return _Found(sizes, None, None, unknown)
        api = [name for each in programs for name in _api(each)]
        images = list(_link(program, api, compiler, folder, linked_objects))
        if not images:
            return _Found(sizes, None, None, unknown)
        linked = read_elf(images[0])
        sections = list(placed_sections(images[0].with_suffix(".map").read_text(errors="replace")))
        placed = dict.fromkeys(linked_objects, 0)
        library = 0
        for section in sections:
            if linked is not None and section.output in linked.in_flash and section.file:
                if section.file in placed:
                    placed[section.file] += section.size
                else:
                    library += section.size
        padding = linked.flash - sum(placed.values()) - library if linked is not None else None
        placed = {name: placed[name] for name in objects}
        listings = _disassemble(compiler, images, folder)
        texts = None if listings is None else [text for text in listings if text]
        stacks = tuple(_stack(each, texts) for each in programs)
    return _Found(placed, library, padding, stacks)


def _stack(program: Program, listings: Sequence[str] | None) -> int | None:
    """Return the stack bound of a program's functions, as in `Measurement`.

    Args:
        listings: output of objdump for each image.
    """
    found = None if listings is None else deepest(listings, _api(program))
    return None if found is None else found + _stacked_arguments(program)


def _compile(
    programs: Sequence[Program], files: Mapping[str, str], sources: Sequence[str], compiler: str, folder: Path
) -> list[str] | None:
    """Compile sources and return the names of the object files; None if headers of a library are missing."""
    program = programs[0]
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    flags = [*program.target.cpu_flags, "-std=c99", program.options.compiler_flag]
    flags += ["-ffunction-sections", "-fdata-sections", *program.options.external_compile_flags]
    what = "compiling the generated code"
    done = run_tool([compiler, *flags, "-c", *sources], folder, COMPILE_SECONDS, what)
    if done.returncode == 0:
        objects = [name.removesuffix(".c") + ".o" for name in sources]
        missing = [name for name in objects if not (folder / name).is_file()]
        if missing:
            raise ToolError(
                f"{compiler} must write {missing[0]}, but it ended successfully without; check the flags: "
                f"{' '.join(flags)}"
            )
        return objects
    if any(each.libraries for each in programs) and not program.options.external_flags:
        return None
    target = program.target
    if lacks_c_library(target):
        return None
    raise ToolError(
        f"{target.compiler} rejected the generated code; compiler and cpu_flags of {target.name} "
        f"({' '.join(target.cpu_flags) or 'none'}) must match its features "
        f"({', '.join(sorted(target.features)) or 'none'}):\n{done.stderr[:4000]}"
    )


def lacks_c_library(target: Target) -> bool:
    """Return whether the target's compiler accepts the target's flags, but has no C library headers."""
    with scratch_folder() as folder:
        (folder / "empty.c").write_text("typedef int nothing;\n", encoding="utf-8")
        (folder / "headers.c").write_text("#include <stdint.h>\n#include <string.h>\n", encoding="utf-8")
        compiled = [
            run_tool(
                [target.compiler, *target.cpu_flags, "-std=c99", "-c", name],
                folder,
                COMPILE_SECONDS,
                "looking for a C library",
            ).returncode
            == 0
            for name in ("empty.c", "headers.c")
        ]
    return compiled == [True, False]


def _link(
    program: Program, api: Sequence[str], compiler: str, folder: Path, objects: Sequence[str]
) -> Iterator[Path]:
    """Yield an image of the model with each available C library. The map is in the same folder."""
    for number, library in enumerate(_C_LIBRARIES):
        image = folder / f"image{number}.elf"
        entry, *others = api
        command = [compiler, *program.target.cpu_flags, *library, "-nostartfiles", "-Wl,--gc-sections"]
        command += [f"-Wl,-e,{entry}", *(f"-Wl,-u,{name}" for name in others)]
        command += [f"-Wl,-Map={image.with_suffix('.map').name}", *objects, *program.options.external_flags]
        done = run_tool([*command, "-lm", "-o", image.name], folder, COMPILE_SECONDS, "linking")
        if done.returncode == 0:
            yield image


def _disassemble(compiler: str, images: Sequence[Path], folder: Path) -> list[str] | None:
    """Return the output of the compiler's objdump for each image; None if objdump is missing or fails."""
    name = "-print-prog-name=objdump"
    asked = run_tool([compiler, name], folder, _TOOL_SECONDS, "asking for objdump")
    tool = shutil.which(asked.stdout.strip()) if asked.returncode == 0 and asked.stdout.strip() else None
    if tool is None:
        return None
    listings: list[str] = []
    for image in images:
        done = run_tool([tool, "-d", THUMB_ARCHITECTURE, image.name], folder, _TOOL_SECONDS, "disassembling")
        if done.returncode != 0:
            return None
        listings.append(done.stdout)
    return listings


def _api(program: Program) -> list[str]:
    functions = ("run", "init", "reset", *(("step",) if program.options.step else ()))
    functions += ("stopped_loops",) if program.may_stop else ()
    names = [f"{program.name}_{function}" for function in functions]
    if program.options.io == "arena":
        names += [f"{program.name}_input_{i}" for i in range(len(program.inputs))]
        names += [f"{program.name}_output_{i}" for i in range(len(program.outputs))]
    return names


def _stacked_arguments(program: Program) -> int:
    """Return the size of the arguments on the stack, in bytes (Arm IHI 0042, 6.4)."""
    if program.options.io != "caller":
        return 0
    beyond = max(
        1 + program.options.split * len(program.arena_parts) + len(program.inputs) + len(program.outputs) - 4,
        0,
    )
    return -(-4 * beyond // 8) * 8
