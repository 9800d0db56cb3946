"""Timing table of a core's instructions, applied to the instructions that a simulated core has executed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from microfold.support.decode import rule

# Maximum cycles of an instruction, far above the real ones of a core without wait states.
MOST_CYCLES = 1000

Cycles = Annotated[int, rule(f"a number of cycles, 0 to {MOST_CYCLES}", ge=0, le=MOST_CYCLES)]
Percent = Annotated[int, rule("percent, 0 to 1000", ge=0, le=1000)]


class CoreTiming(Struct, frozen=True, forbid_unknown_fields=True):
    """Cycles of instructions without wait states, from a core's technical reference manual.

    Attributes:
        source: document of the figures.
        error: maximum error of estimates for whole models, in percent; None: unknown.
        load, store, store_indexed: single transfers; indexed: the address is the sum of two registers.
        next_transfer: single transfer right after a single load whose result is not its address.
        multiple: cycles of a transfer of several words, in addition to one cycle per word.
        taken: additional cycles of a taken branch; all jumps are taken.
    """

    source: str
    error: Percent | None = None
    alu: Cycles = 1
    multiply: Cycles = 1
    multiply_add: Cycles = 1
    multiply_long: Cycles = 1
    divide: Cycles = 7
    load: Cycles = 2
    next_transfer: Cycles = 1
    store: Cycles = 1
    store_indexed: Cycles = 2
    multiple: Cycles = 1
    branch: Cycles = 1
    taken: Cycles = 2
    float: Cycles = 1
    float_multiply_add: Cycles = 3
    float_divide: Cycles = 14
