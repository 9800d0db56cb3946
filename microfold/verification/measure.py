"""Flash and stack of generated C: compiled and linked with the target's own compiler, nothing run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from microfold.codegen.emit import emit, stand_ins
from microfold.codegen.provenance import Build
from microfold.codegen.shared import Shared
from microfold.errors import ToolError
from microfold.program import Program
from microfold.simulate.memory import placed_sections
from microfold.simulate.toolchain import THUMB_ARCHITECTURE
from microfold.support.elf import ARM, read_elf
from microfold.support.frozen import frozen
from microfold.support.scratch import scratch_folder
from microfold.support.tools import COMPILE_SECONDS, run_tool
from microfold.target import Target
from microfold.verification.stack import deepest

# The C libraries that firmware for Arm is linked with; the first one is what flash is counted with.
_C_LIBRARIES = (("--specs=nano.specs",), ())
_TOOL_SECONDS = 60.0


@frozen
class Measurement:
    """What compiler and linker make of the generated C, in bytes, at the options' level of optimisation.

    Attributes:
        code: instructions and layer descriptions: what the model's own files take besides the weights.
        library: functions and constants that the linker takes from the C library, libm and the compiler's own
            library; None if nothing was linked.
        padding: what the linker puts between all of these for their alignment; None likewise.
        stack: an upper bound of what a call of any of the model's functions takes below its caller's stack
            pointer. Library functions are in it, whether of newlib or newlib-nano; interrupts are not. None
            if it cannot be told: the code was not linked, or no disassembler was found.
    """

    code: int
    library: int | None
    padding: int | None
    stack: int | None


def measure(program: Program, files: Mapping[str, str] | None = None) -> Measurement | None:
    """Compile and link for the target and look at the result; None if its compiler is not on the PATH.

    Args:
        files: the C files of the program, if they are there already.

    None too if the code calls libraries whose headers the compiler does not find, if the compiler has no C
    library, or if what the compiler gives is no ELF file.

    Raises:
        ToolError: the compiler refuses the code.
    """
    untapped = program.untapped
    if files is None or untapped is not program:
        files = emit(untapped)
    program = untapped
    found = _measure([program], {**files, **stand_ins(program)}, _api(program))
    if found is None:
        return None
    weights = program.weight_bytes if program.options.weights == "arrays" else 0
    stack = found.stack + _stacked_arguments(program) if found.stack is not None else None
    return Measurement(sum(found.files.values()) - weights, found.library, found.padding, stack)


@frozen
class GroupMeasurement:
    """The same of several programs that share kernels, linked together.

    Attributes:
        models: code of each program's own files.
        kernels: code of what they share.
        library, padding, stack: of all of them, as in `Measurement`.
    """

    models: tuple[int, ...]
    kernels: int
    library: int | None
    padding: int | None
    stack: int | None


def measure_group(shared: Shared, build: Build) -> GroupMeasurement | None:
    """Compile and link programs of one build; results and errors as of `measure`.

    Args:
        build: their files.
    """
    programs = shared.programs
    files = dict(build.files)
    for program in programs:
        files |= stand_ins(program)
    found = _measure(programs, files, [name for program in programs for name in _api(program)])
    if found is None:
        return None
    own = tuple(
        sum(found.files.get(f"{program.name}{part}.o", 0) for part in ("", "_weights"))
        - program.weight_bytes
        + shared.constants.read_by(program.name)
        for program in programs
    )
    arguments = max(map(_stacked_arguments, programs))
    return GroupMeasurement(
        own,
        sum(found.files.values()) - sum(own) - shared.weight_bytes,
        found.library,
        found.padding,
        found.stack + arguments if found.stack is not None else None,
    )


@frozen
class _Found:
    """Bytes of flash by object file, and as in `Measurement`."""

    files: Mapping[str, int]
    library: int | None
    padding: int | None
    stack: int | None


def _measure(programs: Sequence[Program], files: Mapping[str, str], api: Sequence[str]) -> _Found | None:
    """What compiler and linker make of C files.

    Args:
        programs: whose files they are, for one target with the same options.
        api: functions that a firmware calls.
    """
    program = programs[0]
    compiler = shutil.which(program.target.compiler)
    if compiler is None:
        return None
    with scratch_folder() as folder:
        given = {name for each in programs for name in stand_ins(each)}
        sources = sorted(name for name in files if name.endswith(".c") and name not in given)
        # The firmware's own functions: linked, so that the rest is complete, and not counted.
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
            return _Found(sizes, None, None, None)
        images = list(_link(program, api, compiler, folder, linked_objects))
        if not images:
            return _Found(sizes, None, None, None)
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
        stack = None if listings is None else deepest([text for text in listings if text], api)
    return _Found(placed, library, padding, stack)


def _compile(
    programs: Sequence[Program], files: Mapping[str, str], sources: Sequence[str], compiler: str, folder: Path
) -> list[str] | None:
    """Names of the object files of the sources; None if headers of libraries or of C's are missing."""
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
                f"{compiler} must write {missing[0]}; it ended well without; are the flags right: "
                f"{' '.join(flags)}?"
            )
        return objects
    if any(each.libraries for each in programs) and not program.options.external_flags:
        return None
    target = program.target
    if lacks_c_library(target):
        return None
    raise ToolError(
        f"{target.compiler} refused the generated code; compiler and cpu_flags of {target.name} "
        f"({' '.join(target.cpu_flags) or 'none'}) must suit its features "
        f"({', '.join(sorted(target.features)) or 'none'}):\n{done.stderr[:4000]}"
    )


def lacks_c_library(target: Target) -> bool:
    """Whether the target's compiler takes the target's flags, but finds no headers of a C library."""
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
    """Images of the model alone with each C library that is there; their maps lie beside them."""
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
    """What objdump of the compiler's binutils prints of each; None if it is missing or fails."""
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
    """The functions that a firmware calls."""
    functions = ("run", "init", "reset", *(("step",) if program.options.step else ()))
    functions += ("stopped_loops",) if program.may_stop else ()
    names = [f"{program.name}_{function}" for function in functions]
    if program.options.io == "arena":
        names += [f"{program.name}_input_{i}" for i in range(len(program.inputs))]
        names += [f"{program.name}_output_{i}" for i in range(len(program.outputs))]
    return names


def _stacked_arguments(program: Program) -> int:
    """Bytes of arguments that do not fit into registers (Arm IHI 0042, 6.4)."""
    if program.options.io != "caller":
        return 0
    beyond = max(
        1 + program.options.split * len(program.arena_parts) + len(program.inputs) + len(program.outputs) - 4,
        0,
    )
    return -(-4 * beyond // 8) * 8
