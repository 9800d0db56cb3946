"""Timing of a core's instructions: a documented table, applied to what a simulated core executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

# Where a table of cycles per instruction has the operators that it does not name.
OTHERS = "others"


@dataclass(frozen=True)
class Timing:
    """Cycles of instructions without wait states, from a core's technical reference manual.

    Attributes:
        source: the document.
        load, store, store_indexed: single transfers; indexed: the address is the sum of two registers.
        next_transfer: a single transfer right behind a single load whose result is not its address.
        multiple: of an instruction that transfers several words, besides one cycle for each.
        taken: what a branch costs more when it is taken; all jumps are.
        cycles_per_instruction: of whole layers, by operator, and `OTHERS`: what this table gave for layers
            that were run. It turns estimated instructions into estimated cycles; empty: none are estimated.
    """

    source: str
    alu: int = 1
    multiply: int = 1
    multiply_add: int = 1
    multiply_long: int = 1
    divide: int = 7
    load: int = 2
    next_transfer: int = 1
    store: int = 1
    store_indexed: int = 2
    multiple: int = 1
    branch: int = 1
    taken: int = 2
    float: int = 1
    float_multiply_add: int = 3
    float_divide: int = 14
    cycles_per_instruction: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def estimated_cycles(self, operator: str, instructions: int) -> int | None:
        """Cycles of a layer that was not run; None if no layer's cycles per instruction are known."""
        factors = self.cycles_per_instruction
        return round(instructions * factors.get(operator, factors[OTHERS])) if factors else None
