"""Objects of generated C with every compiler, optimisation level and kind of frame, in bounded time."""

from __future__ import annotations

import re
import resource
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path

from microfold.target import Target

CLANGS = (
    "clang",
    "clang-19",
)  # the distribution's own, and a newer one that Debian 12 and Ubuntu 24.04 both have
ARM_GCC = "arm-none-eabi-gcc"
OPTIMIZATIONS = ("-O0", "-Og", "-O1", "-Os", "-O2", "-O3")
FRAMES = ("-fomit-frame-pointer", "-fno-omit-frame-pointer")
# Firmware that keeps its thread's data in r9 leaves no other register for it.
RESERVED = (("-Os", "-ffixed-r9"), ("-O2", "-ffixed-r9"))
WITHOUT_ASSEMBLY = (("-O2", "-DMF_NO_ASM"),)
CPU_SECONDS = 60  # for one file; the slowest takes some 10
TOOLS = (ARM_GCC, *CLANGS)

Command = tuple[str, ...]

_STATEMENT = re.compile(r"__asm__[^;]*?\(\s*\".*?\);", re.DOTALL)


@cache
def arm_headers() -> tuple[str, ...]:
    """Return the options by which clang finds newlib's headers where Arm's gcc does."""
    command = [ARM_GCC, "-xc", "-E", "-v", "/dev/null"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    folders = listing.partition("search starts here:\n")[2].partition("End of search")[0].split()
    return tuple(f"-isystem{folder}" for folder in folders if Path(folder, "string.h").is_file())


def compilers(core: Target) -> list[Command]:
    """Return each compiler for the core, with the options that select it."""
    if not core.board:
        return [(name, *core.cpu_flags) for name in ("gcc", *CLANGS)]
    clangs = [(name, "--target=arm-none-eabi", *arm_headers(), *core.cpu_flags) for name in CLANGS]
    return [(core.compiler, *core.cpu_flags), *clangs]


def commands(core: Target) -> Iterator[Command]:
    """Yield every command that compiles a file for the core, without the file's name."""
    ways = [*product(OPTIMIZATIONS, FRAMES), *WITHOUT_ASSEMBLY, *(RESERVED if core.board else ())]
    for compiler, way in product(compilers(core), ways):
        yield (*compiler, "-std=c99", *way)


def statements(files: dict[str, str]) -> frozenset[str]:
    """Return the assembly statements of C files: compilers run out of registers for their operands."""
    code = (text for name, text in files.items() if name.endswith((".c", ".h")))
    return frozenset(re.sub(r"\s+", " ", found) for text in code for found in _STATEMENT.findall(text))


def compile_objects(command: Command, names: Sequence[str], folder: Path, seconds: int = CPU_SECONDS) -> str:
    """Compile files, each to an object; return what the compiler says, or by which signal it ended.

    Args:
        seconds: of a processor, after which a compiler is killed: it hangs.
    """

    def limit_time() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    for name in names:
        done = subprocess.run(
            [*command, "-c", name, "-o", "object.o"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=limit_time,
        )
        if done.returncode or done.stderr:
            return f"{' '.join(command)}: exit {done.returncode}\n{_errors(done.stderr)}"
    return ""


def _errors(said: str) -> str:
    """Return the lines with errors, if there are any: Clang's crashes come with hundreds of others."""
    lines = said.splitlines()
    found = [line for line in lines if "error:" in line or "Error:" in line]
    return "\n".join((found or lines)[:8])
