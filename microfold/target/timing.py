"""Timing table of a core's instructions, applied to the instructions that a simulated core has executed."""

from __future__ import annotations

from microfold.support.frozen import frozen


@frozen
class Timing:
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
