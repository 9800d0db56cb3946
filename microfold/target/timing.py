"""Timing of a core's instructions: a documented table, applied to what a simulated core executed."""

from __future__ import annotations

from microfold.support.frozen import frozen


@frozen
class Timing:
    """Cycles of instructions without wait states, from a core's technical reference manual.

    Attributes:
        source: the document.
        error: percent; how far estimates of whole models may be off. None: not known.
        load, store, store_indexed: single transfers; indexed: the address is the sum of two registers.
        next_transfer: a single transfer right behind a single load whose result is not its address.
        multiple: of an instruction that transfers several words, besides one cycle for each.
        taken: what a branch costs more when it is taken; all jumps are.
    """

    source: str
    error: int | None = None
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
