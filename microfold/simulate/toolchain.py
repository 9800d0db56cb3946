"""The outside tools: finding them, compiling, linking; every failure says what to do."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from microfold.errors import ToolError
from microfold.support.elf import has_arm_code
from microfold.support.tools import COMPILE_SECONDS, run_tool

ARM_COMPILER = "arm-none-eabi-gcc"
# For objdump, which does not find out of every image that it may have instructions of Armv8.1-M; that has all
# that cores before it have.
THUMB_ARCHITECTURE = "-marmv8.1-m.main"
EMULATOR = "qemu-system-arm"

# Debian's and Ubuntu's packages; other systems mostly call them alike.
_PACKAGES = {
    ARM_COMPILER: "gcc-arm-none-eabi and libnewlib-arm-none-eabi",
    EMULATOR: "qemu-system-arm",
}
_MESSAGE_LINES = 20


def find_tool(name: str) -> str:
    """Path of an executable.

    Raises:
        ToolError: it is not on PATH; names the package to install.
    """
    path = shutil.which(name)
    if path is None:
        package = f"install the package {_PACKAGES[name]}" if name in _PACKAGES else "install it"
        raise ToolError(f"simulating a target needs {name}, which is not on PATH; {package}")
    return path


def missing_tools(compiler: str = ARM_COMPILER) -> list[str]:
    """One sentence for each tool that a simulation needs and this machine lacks."""
    sentences: list[str] = []
    for name in (compiler, EMULATOR):
        try:
            find_tool(name)
        except ToolError as error:
            sentences.append(str(error))
    return sentences


# Options of which the last one counts, but which GCC takes all into account when it chooses its libraries.
_SINGLE_OPTIONS = ("-mcpu=", "-march=", "-mfpu=", "-mfloat-abi=")


def effective_flags(flags: Sequence[str]) -> list[str]:
    """Flags without those that later ones replace, e.g. the first of two ``-mfloat-abi=``.

    Compilers heed the last one, but GCC finds no library for contradicting flags, and links the one for cores
    with the Arm instruction set, in which Cortex-M runs wild.
    """
    last = {
        flag[: flag.index("=") + 1]: i for i, flag in enumerate(flags) if flag.startswith(_SINGLE_OPTIONS)
    }
    return [
        flag
        for i, flag in enumerate(flags)
        if not flag.startswith(_SINGLE_OPTIONS) or last[flag[: flag.index("=") + 1]] == i
    ]


def compile_object(compiler: str, flags: Sequence[str], folder: Path, source: str) -> str:
    """Compiles one C file to an object file beside it, with ``folder`` as include path.

    Args:
        folder: where the compiler runs, so that no path of this machine gets into the object.
        source: path relative to it.
    Returns: the object's path, relative to ``folder``.
    Raises:
        ToolError: the compiler is missing or rejects the file; carries the compiler's message.
    """
    target = source.removesuffix(".c") + ".o"
    _run([find_tool(compiler), *flags, "-I.", "-c", source, "-o", target], folder, f"compiling {source}")
    return target


def link(
    compiler: str, flags: Sequence[str], folder: Path, objects: Sequence[str], script: str, elf: str
) -> str:
    """Links a bare-metal image with newlib-nano, dropping what is not used.

    Args:
        folder: where all files are; the other paths are relative to it.
    Returns: the text of the linker's map, which says where every input section went.
    Raises:
        ToolError: the compiler is missing; the link fails, e.g. because the model is larger than the board;
            there is no library for the core.
    """
    command = [find_tool(compiler), *flags, "--specs=nano.specs", "-nostartfiles", "-T", script]
    command += ["-Wl,--gc-sections", f"-Wl,-Map={elf}.map", *objects, "-lm", "-o", elf]
    _run(command, folder, "linking")
    if has_arm_code((folder / elf).read_bytes()):
        raise ToolError(
            f"linking must take libraries for Thumb instructions, all that Cortex-M has; {compiler} has none "
            f"for {' '.join(flags)}, and took Arm code: give flags as -print-multi-lib lists them"
        )
    return (folder / f"{elf}.map").read_text(encoding="utf-8", errors="replace")


def _run(command: Sequence[str], folder: Path, what: str) -> None:
    done = run_tool(command, folder, COMPILE_SECONDS, what, f": {' '.join(command)}")
    if done.returncode != 0:
        raise ToolError(
            f"{what} failed: {' '.join(command)}\n{_first_lines(done.stderr)}{_hint(done.stderr)}"
        )


def _first_lines(text: str) -> str:
    lines = text.strip().splitlines()
    left_out = f"\n({len(lines) - _MESSAGE_LINES} more lines)" if len(lines) > _MESSAGE_LINES else ""
    return "\n".join(lines[:_MESSAGE_LINES]) + left_out


def _hint(message: str) -> str:
    if "nano.specs" in message:
        return "\nthe C library for bare Arm cores is missing; install the package libnewlib-arm-none-eabi"
    if "will not fit in region" in message or "overflowed by" in message:
        return "\nthe model is larger than the memory of the simulated board"
    if "unrecognized -mcpu target" in message:
        return (
            "\nthis compiler is older than the core; install a newer one or set other cpu_flags in the target"
        )
    return ""
