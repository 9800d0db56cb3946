"""Simulated boards: QEMU machine, memory map, and the counter from which instructions are read.

The addresses are from the boards' application notes (Arm DAI 0385, 0386, 0500, 0505, 0547), as modelled by
QEMU's `hw/arm/mps2.c` and `hw/arm/mps2-tz.c`. Cores with TrustZone start in the secure state and stay there,
so their memories are accessed through the secure aliases.

Instructions are counted in virtual time: with QEMU's `-icount shift=N`, each instruction takes exactly 2**N
ns. SysTick also runs in virtual time. At a resolution of single instructions, however, its 24 bits wrap after
a few million instructions, and an interrupt that counts the wraps would use the model's stack and time. All
boards have a 32-bit counter in their FPGA system control block (FPGAIO). It runs in the same virtual time,
needs no interrupt and is read by one load. A second counter, of seconds, reveals the wraps of the first one.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from microfold.errors import TargetError

INSTRUCTION_SHIFT = 7
"""Each instruction takes 2**7 ns: over two ticks of the slowest counter, so single ones are resolved."""

_KIB = 1024
_MIB = 1024 * _KIB
_VECTORS_LENGTH = 0x100


class MemoryRegion(Struct, frozen=True):
    """Part of the address space, with its origin and its length in bytes."""

    origin: int
    length: int

    def __contains__(self, address: int) -> bool:
        return self.origin <= address < self.origin + self.length


class SimulatedBoard(Struct, frozen=True):
    """Board that QEMU simulates.

    Attributes:
        machine: name of the board in QEMU and in target descriptions.
        core: core of the board; it also runs code for older architecture levels.
        vectors: memory of the vector table at reset.
        code: memory of text and constants.
        ram: memory of the stack, data and the model's context.
        fpgaio: address of the FPGA system control block.
        counter_hz: rate of its counter at reset, in ticks per second of virtual time.
    """

    machine: str
    core: str
    vectors: MemoryRegion
    code: MemoryRegion
    ram: MemoryRegion
    fpgaio: int
    counter_hz: int

    def instructions(self, ticks: int) -> int:
        """Return the number of instructions for a number of ticks, rounded to the nearest integer."""
        ticks_per_2_pow_30 = self.counter_hz << INSTRUCTION_SHIFT
        return (ticks * 1_000_000_000 * 2 + ticks_per_2_pow_30) // (2 * ticks_per_2_pow_30)


def _mps2(machine: str, core: str) -> SimulatedBoard:
    return SimulatedBoard(
        machine=machine,
        core=core,
        vectors=MemoryRegion(0x00000000, _VECTORS_LENGTH),
        code=MemoryRegion(_VECTORS_LENGTH, 4 * _MIB - _VECTORS_LENGTH),  # ZBT SSRAM 1
        ram=MemoryRegion(0x20000000, 4 * _MIB),  # ZBT SSRAM 2 and 3
        fpgaio=0x40028000,
        counter_hz=25_000_000,
    )


BOARDS: Mapping[str, SimulatedBoard] = {
    board.machine: board
    for board in (
        # Armv6-M is a subset of Armv7-M, so the Cortex-M3 executes code for the Cortex-M0+ with the same
        # number of instructions. Unaligned accesses, which only the M3 allows, are configured to fault.
        _mps2("mps2-an385", "cortex-m3"),
        _mps2("mps2-an386", "cortex-m4"),
        _mps2("mps2-an500", "cortex-m7"),
        SimulatedBoard(
            machine="mps2-an505",
            core="cortex-m33",
            vectors=MemoryRegion(0x10000000, _VECTORS_LENGTH),
            code=MemoryRegion(0x10000000 + _VECTORS_LENGTH, 4 * _MIB - _VECTORS_LENGTH),  # SSRAM 1
            ram=MemoryRegion(0x38000000, 4 * _MIB),  # SSRAM 2 and 3
            fpgaio=0x50302000,
            counter_hz=20_000_000,
        ),
        # Armv8.1-M with Helium: code for the Cortex-M85 runs here as long as it does not use pointer
        # authentication, which the Cortex-M55 lacks.
        SimulatedBoard(
            machine="mps3-an547",
            core="cortex-m55",
            vectors=MemoryRegion(0x00000000, _VECTORS_LENGTH),  # instruction TCM
            code=MemoryRegion(0x11000000, 2 * _MIB),  # SRAM
            ram=MemoryRegion(0x31000000, 4 * _MIB),  # internal SRAM
            fpgaio=0x59302000,
            counter_hz=20_000_000,
        ),
    )
}


def find(machine: str) -> SimulatedBoard:
    """Return the board with a QEMU machine name.

    Raises:
        TargetError: the name is unknown, or empty (the target cannot be simulated).
    """
    if machine not in BOARDS:
        known = ", ".join(BOARDS)
        raise TargetError(f"the board of a simulated target must be one of {known}; it is {machine!r}")
    return BOARDS[machine]
