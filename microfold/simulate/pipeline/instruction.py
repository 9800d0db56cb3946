"""Instructions as far as pipelines tell them apart: a class, and which registers they read and write when."""

from __future__ import annotations

from microfold.support.frozen import frozen

FLAGS = "flags"


@frozen
class Instruction:
    """One instruction.

    Registers of the floating-point unit are single-precision ones; four of them are a vector.

    Attributes:
        address: where it stands.
        size: bytes.
        name: one of `target.pipeline.CLASSES`.
        reads: registers that are plain operands.
        accumulates: operands that a product is added to.
        shifted: operands that are shifted or taken apart first.
        addresses: registers that an address is made of.
        stores: registers that go to memory.
        writes: results.
        updates: the register of the address, if that is stepped.
        reads_flags: whether it waits for flags; branches do not, they are predicted.
        words: that a transfer moves.
        base: register of the address; `offset`: bytes behind it. Empty where the program counter is.
        indexed: the address is a sum of two registers.
        text: as the disassembler writes it.
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
        """The address behind it."""
        return self.address + self.size
