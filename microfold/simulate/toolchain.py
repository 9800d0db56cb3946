"""External tools: location, compilation and linking. Error messages include a remedy."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from microfold.errors import ToolError
from microfold.support.elf import has_arm_code
from microfold.support.tools import COMPILE_SECONDS, run_tool

ARM_COMPILER = "arm-none-eabi-gcc"
# Architecture for objdump, which does not always detect Armv8.1-M. It includes all earlier instructions.
THUMB_ARCHITECTURE = "-marmv8.1-m.main"
EMULATOR = "qemu-system-arm"

# Package names of Debian and Ubuntu. Most other systems use the same names.
_PACKAGES = {
    ARM_COMPILER: "gcc-arm-none-eabi and libnewlib-arm-none-eabi",
    EMULATOR: "qemu-system-arm",
}
_MESSAGE_LINES = 20


def find_tool(name: str) -> str:
    """Return the path of an executable.

    Raises:
        ToolError: the tool is not on PATH. The message names the package to install.
    """
    path = shutil.which(name)
    if path is None:
        package = f"install the package {_PACKAGES[name]}" if name in _PACKAGES else "install it"
        raise ToolError(f"simulation requires {name}, which is not on PATH: {package}")
    return path


def missing_tools(compiler: str = ARM_COMPILER) -> list[str]:
    """Return one sentence for each tool that a simulation requires and that this machine lacks."""
    sentences: list[str] = []
    for name in (compiler, EMULATOR):
        try:
            find_tool(name)
        except ToolError as error:
            sentences.append(str(error))
    return sentences


# Options whose last occurrence is effective. When it selects libraries, however, GCC uses all occurrences.
_SINGLE_OPTIONS = ("-mcpu=", "-march=", "-mfpu=", "-mfloat-abi=")


def effective_flags(flags: Sequence[str]) -> list[str]:
    """Return the flags without overridden ones, e.g. the first of two ``-mfloat-abi=``.

    GCC compiles with the last flag. For contradictory flags, however, it finds no matching library, and links
    the one for the Arm instruction set, which Cortex-M cores cannot execute.
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
    """Compile a C file to an object file in the same folder, with ``folder`` as include path.

    Args:
        folder: working folder of the compiler, so that the object contains no path of this machine.
        source: path relative to ``folder``.
    Returns: path of the object file, relative to ``folder``.
    Raises:
        ToolError: the compiler is missing or rejects the file. The message includes the compiler's message.
    """
    target = source.removesuffix(".c") + ".o"
    _run([find_tool(compiler), *flags, "-I.", "-c", source, "-o", target], folder, f"compiling {source}")
    return target


def link(
    compiler: str, flags: Sequence[str], folder: Path, objects: Sequence[str], script: str, elf: str
) -> str:
    """Link a bare-metal image with newlib-nano, without unused sections.

    Args:
        folder: folder of all files; the other paths are relative to it.
    Returns: text of the linker's map, with the location of every input section.
    Raises:
        ToolError: the compiler is missing, linking fails (e.g. because the board is too small for the model),
            or no library exists for the core.
    """
    command = [find_tool(compiler), *flags, "--specs=nano.specs", "-nostartfiles", "-T", script]
    command += ["-Wl,--gc-sections", f"-Wl,-Map={elf}.map", *objects, "-lm", "-o", elf]
    _run(command, folder, "linking")
    if has_arm_code((folder / elf).read_bytes()):
        raise ToolError(
            f"libraries must consist of Thumb instructions, which are all that Cortex-M has; {compiler} has "
            f"none for {' '.join(flags)}, and linked Arm code: use flags that -print-multi-lib lists"
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
