"""Instruction model for pipelines: its class, and the registers that it reads and writes."""

from __future__ import annotations

from msgspec import Struct

FLAGS = "flags"


class Instruction(Struct, frozen=True):
    """Instruction for a pipeline.

    Registers of the floating-point unit are single-precision registers; a vector consists of four of them.

    Attributes:
        size: size in bytes.
        name: class, one of `target.pipeline.CLASSES`.
        reads: plain operands (registers).
        accumulates: accumulators, to which a product is added.
        shifted: operands that are first shifted, or from which a field is extracted.
        addresses: registers of an address.
        stores: registers that are written to memory.
        writes: registers of results.
        updates: base register, if it is updated.
        reads_flags: whether the instruction waits for flags. Branches do not, because they are predicted.
        words: number of words that a transfer moves.
        base: base register of an address; empty for the program counter.
        offset: offset from the base, in bytes.
        indexed: whether the address is the sum of two registers.
    """

    address: int
    size: int
    name: str
    reads: tuple[str, ...] = ()
    accumulates: tuple[str, ...] = ()
    shifted: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    updates: str = ""
    reads_flags: bool = False
    words: int = 1
    base: str = ""
    offset: int = 0
    indexed: bool = False
    text: str = ""

    @property
    def end(self) -> int:
        """Address after the instruction."""
        return self.address + self.size
