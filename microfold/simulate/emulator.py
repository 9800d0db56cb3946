"""Execution of an image under QEMU, and diagnosis of failures."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from microfold.errors import RunError, ToolError
from microfold.simulate.boards import INSTRUCTION_SHIFT, SimulatedBoard
from microfold.simulate.memory import PlacedSection
from microfold.simulate.toolchain import EMULATOR, find_tool
from microfold.support.tools import ToolTimeout, run_tool

# Bits of the Configurable Fault Status Register (Armv8-M ARM, D1.2.28) that generated code could set.
_CFSR_BITS = {
    0: "instruction fetch from a forbidden address",
    1: "data access to a forbidden address",
    8: "instruction fetch from an address without memory",
    9: "data access to an address without memory",
    10: "data access to an address without memory",
    12: "the stack is outside the memory",
    16: "undefined instruction: the code uses a feature that the core lacks",
    17: "invalid state: a branch to an address that is no Thumb code",
    19: "floating-point or vector unit not available",
    20: "stack overflow",
    24: "unaligned access",
    25: "division by zero",
}
_LOCKUP = re.compile(r"Lockup: .*")
_FAULT = re.compile(r"^fault: (.*)$", re.MULTILINE)


def run_image(
    board: SimulatedBoard,
    elf: Path,
    folder: Path,
    timeout: float,
    sections: Sequence[PlacedSection],
    plugin: str = "",
) -> None:
    """Run an image until it exits. It reads and writes files in ``folder``.

    Args:
        timeout: time limit, in seconds of real time.
        sections: sections of the image, to name the function of a fault.
        plugin: QEMU option for a plugin; with a plugin, the board's counters do not work.
    Raises:
        RunError: the image faults, or does not end in time.
        ToolError: QEMU is missing or fails, or the image reports a failure.
    """
    command = [find_tool(EMULATOR), "-machine", board.machine, "-kernel", str(elf)]
    # sleep=off: virtual time follows the instructions alone, never the host's clock.
    command += ["-plugin", plugin] if plugin else ["-icount", f"shift={INSTRUCTION_SHIFT},sleep=off"]
    command += ["-semihosting-config", "enable=on,target=native"]
    command += ["-display", "none", "-serial", "none", "-monitor", "none"]
    what = f"the simulation of {elf.stem} on {board.machine}"
    try:
        done = run_tool(command, folder, timeout, what, "; allow more time, or fewer inputs")
    except ToolTimeout as error:
        raise RunError(str(error)) from None
    if done.returncode != 0:
        kind = RunError if _LOCKUP.search(done.stderr) or _FAULT.search(done.stderr) else ToolError
        raise kind(f"{what} failed: {_reason(done, sections)}")


def _reason(done: subprocess.CompletedProcess[str], sections: Sequence[PlacedSection]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip() and ": warning: " not in line]
    text = "\n".join(lines)
    if lockup := _LOCKUP.search(text):
        return f"the core locked up ({lockup[0]}); the stack pointer is probably outside the memory"
    if found := _FAULT.search(text):
        registers = dict(part.split("=", 1) for part in found[1].split() if "=" in part)
        causes = fault_causes(int(registers["cfsr"], 16))
        where = function_at(int(registers["pc"], 16), sections)
        return f"the core faulted in {where}: {', '.join(causes) or 'unknown cause'} ({found[1].strip()})"
    if text:
        return lines[-1].removeprefix("harness: ")
    return f"{Path(done.args[0]).name} ended with status {done.returncode} and no message"


def fault_causes(cfsr: int) -> list[str]:
    """Return the meanings of the bits that are set in the Configurable Fault Status Register."""
    return list(dict.fromkeys(text for bit, text in _CFSR_BITS.items() if cfsr >> bit & 1))


def function_at(address: int, sections: Sequence[PlacedSection]) -> str:
    """Return the function at an address of the image. Each function has its own section."""
    for section in sections:
        if section.output == ".text" and section.address <= address < section.address + section.size:
            return f"{section.name.removeprefix('.text.')}()"
    return f"no function (0x{address:08x})"
