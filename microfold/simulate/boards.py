"""The simulated boards, as data: QEMU machine, memory map, and the counter that instructions are read from.

Addresses are those of the boards' application notes (Arm DAI 0385, 0386, 0500, 0505, 0547) as QEMU's
`hw/arm/mps2.c` and `hw/arm/mps2-tz.c` model them. The cores with TrustZone start in the secure state and stay
there, so their memories are used through the secure aliases.

Instructions are counted in virtual time: QEMU's `-icount shift=N` lets each instruction take exactly 2**N ns.
SysTick runs by that time, too, but its 24 bits wrap after a few million instructions when it is to tell
single ones apart, and the interrupt that counts the wraps would use the model's stack and time. All these
boards have a 32-bit counter in their FPGA system control block (FPGAIO) that runs by the same virtual time,
needs no interrupt and is read with one load; a second one counts seconds and tells the wraps of the first.
"""

from __future__ import annotations

from collections.abc import Mapping

from microfold.errors import TargetError
from microfold.support.frozen import frozen

INSTRUCTION_SHIFT = 7
"""Each instruction takes 2**7 ns: over two ticks of the slowest counter, so that single ones can be told."""

_KIB = 1024
_MIB = 1024 * _KIB
_VECTORS_LENGTH = 0x100


@frozen
class Region:
    """Part of the address space; ``origin`` and ``length`` in bytes."""

    origin: int
    length: int

    def __contains__(self, address: int) -> bool:
        return self.origin <= address < self.origin + self.length


@frozen
class Board:
    """A board that QEMU simulates.

    Attributes:
        machine: QEMU's name, also the name in the target descriptions.
        core: the core it has; older architecture levels run on it as well.
        vectors: where the core reads its vector table at reset.
        code: text and constants.
        ram: stack, data and the model's context.
        fpgaio: address of the FPGA system control block.
        counter_hz: rate of that block's counter at reset, ticks per second of virtual time.
    """

    machine: str
    core: str
    vectors: Region
    code: Region
    ram: Region
    fpgaio: int
    counter_hz: int

    def instructions(self, ticks: int) -> int:
        """Instructions that took ``ticks`` of the counter, to the nearest one."""
        ticks_per_2_pow_30 = self.counter_hz << INSTRUCTION_SHIFT
        return (ticks * 1_000_000_000 * 2 + ticks_per_2_pow_30) // (2 * ticks_per_2_pow_30)


def _mps2(machine: str, core: str) -> Board:
    return Board(
        machine=machine,
        core=core,
        vectors=Region(0x00000000, _VECTORS_LENGTH),
        code=Region(_VECTORS_LENGTH, 4 * _MIB - _VECTORS_LENGTH),  # ZBT SSRAM 1
        ram=Region(0x20000000, 4 * _MIB),  # ZBT SSRAM 2 and 3
        fpgaio=0x40028000,
        counter_hz=25_000_000,
    )


BOARDS: Mapping[str, Board] = {
    board.machine: board
    for board in (
        # Armv6-M is a subset of Armv7-M, so code for the Cortex-M0+ runs on the Cortex-M3: the same
        # instructions, and as many. What the M3 allows beyond, unaligned access, is made to fault.
        _mps2("mps2-an385", "cortex-m3"),
        _mps2("mps2-an386", "cortex-m4"),
        _mps2("mps2-an500", "cortex-m7"),
        Board(
            machine="mps2-an505",
            core="cortex-m33",
            vectors=Region(0x10000000, _VECTORS_LENGTH),
            code=Region(0x10000000 + _VECTORS_LENGTH, 4 * _MIB - _VECTORS_LENGTH),  # SSRAM 1
            ram=Region(0x38000000, 4 * _MIB),  # SSRAM 2 and 3
            fpgaio=0x50302000,
            counter_hz=20_000_000,
        ),
        # Armv8.1-M with Helium: code for the Cortex-M85 runs here as long as it does not use pointer
        # authentication, which the Cortex-M55 lacks.
        Board(
            machine="mps3-an547",
            core="cortex-m55",
            vectors=Region(0x00000000, _VECTORS_LENGTH),  # instruction TCM
            code=Region(0x11000000, 2 * _MIB),  # SRAM
            ram=Region(0x31000000, 4 * _MIB),  # internal SRAM
            fpgaio=0x59302000,
            counter_hz=20_000_000,
        ),
    )
}


def find(machine: str) -> Board:
    """The board with this QEMU machine name.

    Raises:
        TargetError: there is none, or the name is empty (a target that cannot be simulated).
    """
    if machine not in BOARDS:
        known = ", ".join(BOARDS)
        raise TargetError(f"a simulated target needs one of the boards {known}; its board is {machine!r}")
    return BOARDS[machine]
