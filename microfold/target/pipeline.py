"""Pipelines as data: when instructions of a core read, when they have results, which go together.

Times are stages of an in-order pipeline, in cycles from the one in which an instruction is issued: it reads
an operand at its stage, and its result is there at its latency. An instruction waits until no operand comes
later than it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from microfold.support.frozen import frozen

# Each class with the one that it is a kind of: what a pipeline does not say of a class, it says of that one.
CLASSES: dict[str, str] = {
    "alu": "",
    "add": "alu",
    "add_immediate": "add",
    "move": "alu",
    "shift": "alu",
    "shifted_operand": "alu",  # an operand is shifted on its way
    "dsp": "alu",  # of several numbers in a register, or saturating
    "extend": "dsp",
    "bit_field": "dsp",
    "multiply": "",
    "multiply_long": "multiply",
    "divide": "",
    "system": "",
    "nop": "alu",
    "it": "",
    "branch": "",
    "branch_conditional": "branch",
    "branch_indirect": "branch",
    "loop_start": "branch",
    "loop_end": "branch",
    "load": "",
    "load_narrow": "load",
    "load_branch": "load",
    "load_double": "load",
    "load_multiple": "load",
    "store": "",
    "store_double": "store",
    "store_multiple": "store",
    "float": "",
    "float_add": "float",
    "float_multiply_add": "float",
    "float_divide": "float",
    "float_root": "float_divide",
    "float_move": "float",
    "float_constant": "float_move",  # a number that the instruction has
    "float_from_core": "float",
    "float_pair_from_core": "float",
    "core_from_float": "float",
    "core_pair_from_float": "float",
    "float_load": "load",
    "float_load_double": "float_load",
    "float_load_multiple": "load_multiple",
    "float_store": "store",
    "float_store_double": "float_store",
    "float_store_multiple": "store_multiple",
    "vector": "",
    "vector_integer": "vector",
    "vector_narrow": "vector_integer",
    "vector_round_shift": "vector_integer",
    "vector_extreme": "vector_integer",  # the largest or smallest of its elements, into a register
    "vector_from_core": "vector_integer",  # all elements alike
    "vector_move": "vector",  # of a whole vector
    "vector_predicate": "vector",
    "vector_multiply": "vector",
    "vector_sum": "vector_multiply",  # of products or elements, into a register
    "vector_float_add": "vector_multiply",
    "vector_compare": "vector_multiply",
    "lane_from_core": "vector",
    "core_from_lane": "vector",
    "vector_load": "vector",
    "vector_gather": "vector_load",
    "vector_load_interleaved": "vector_load",
    "vector_store": "vector",
    "vector_scatter": "vector_store",
    "vector_store_interleaved": "vector_store",
}


@frozen
class Issue:
    """One class of instructions in a pipeline.

    Attributes:
        read, accumulate, shifted, address, store: stages at which these operands are read.
        index: of vectors that are addresses.
        loaded: the stage at which an operand is read that a load brought; None: as any other.
        loaded_sum: the same for operands that a product is added to.
        flags: likewise flags.
        latency: cycles until there are results, from the last cycle of the issue on.
        chained: cycles from one issue to the next one whose product is added to this one's result; None: as
            for any other use of it.
        early: the latency where all operands are there at stage 0; None: it is the same.
        early_second: whether that holds for the second of two that are issued together, too.
        busy: cycles in which nothing else is issued; 0: it joins the instruction before it.
        words: of a transfer, so many are moved in each of these cycles; 0: `busy` is all.
        alone: whether nothing is issued beside it.
        units: what computes it: the first of these that is free.
        unit_busy: cycles that a unit is taken.
        holds: cycles in which no instruction of the core is issued behind it, but vectors.
        source: where these figures are from, where not from the pipeline's source.
    """

    read: int = 0
    accumulate: int = 0
    shifted: int = 0
    address: int = 0
    index: int = 0
    store: int = 0
    loaded: int | None = None
    loaded_sum: int | None = None
    flags: int = 0
    latency: int = 1
    chained: int | None = None
    early: int | None = None
    early_second: bool = False
    busy: int = 1
    words: int = 0
    alone: bool = False
    units: tuple[str, ...] = ()
    unit_busy: int = 1
    holds: int = 0
    source: str = ""


@frozen
class Pipeline:
    """The pipeline of a core.

    Attributes:
        source: the documents, or the measurements.
        error: percent; how far estimates of whole models may be off.
        width: instructions that are issued in a cycle.
        taken: cycles that a taken branch costs more.
        missed: cycles that a branch costs more which its predictor misses: the less frequent way.
        issues: by class, with what it inherits, see `CLASSES`.
        never: pairs of classes, the older one first, that are not issued together.
        apart: pairs of classes, with the cycles behind the older one in which the younger one is not issued.
        leads: likewise, in which it is not issued as the second one of two.
        halfwords: whether only two instructions of 16 bits are.
        one_of: where not empty, one of the two must be of these classes.
        banks: whether two loads are issued together only from one base, and from odd and even words.
    """

    source: str
    error: int
    width: int = 1
    taken: int = 0
    missed: int = 0
    issues: Mapping[str, Issue] = field(default_factory=dict)
    never: frozenset[tuple[str, str]] = frozenset()
    apart: Mapping[tuple[str, str], int] = field(default_factory=dict)
    leads: Mapping[tuple[str, str], int] = field(default_factory=dict)
    halfwords: bool = False
    one_of: frozenset[str] = frozenset()
    banks: bool = False


def ancestry(name: str) -> Iterator[str]:
    """A class and those that it is a kind of, from the nearest one."""
    while name:
        yield name
        name = CLASSES[name]
