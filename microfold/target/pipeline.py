"""Pipeline descriptions: read stages, latencies and dual-issue rules of a core's instructions.

Times are stages of an in-order pipeline, in cycles since the issue of the instruction. An instruction reads
each operand at a certain stage, and its result is available after its latency. It is not issued before all
operands are available at the stages in which it reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

# Instruction classes, each with its parent. A class inherits figures that a pipeline does not define for it.
CLASSES: dict[str, str] = {
    "alu": "",
    "add": "alu",
    "add_immediate": "add",
    "move": "alu",
    "shift": "alu",
    "shifted_operand": "alu",  # with an operand that is shifted first
    "dsp": "alu",  # on several numbers in a register, or saturating
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
    "float_constant": "float_move",  # immediate operand
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
    "vector_extreme": "vector_integer",  # maximum or minimum of all elements, into a register
    "vector_from_core": "vector_integer",  # broadcast to all elements
    "vector_move": "vector",  # whole vector
    "vector_predicate": "vector",
    "vector_multiply": "vector",
    "vector_sum": "vector_multiply",  # sum of products or elements, into a register
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


class Issue(Struct, frozen=True):
    """Figures of one instruction class in a pipeline.

    Attributes:
        read, accumulate, shifted, address, store: stages at which these operands are read.
        index: stage at which a vector of addresses is read.
        loaded: stage at which the result of a load is read; None: like any other operand.
        loaded_sum: stage at which an accumulator is read that a load has produced; None: like any other.
        flags: stage at which flags are read.
        latency: cycles from the last issue cycle until the results are available.
        chained: cycles between the issues of two multiply-adds, of which the second accumulates onto the
            result of the first; None: like any other use of the result.
        early: latency if all operands are available at stage 0; None: the same latency.
        early_second: whether `early` also holds for the second of two instructions issued together.
        busy: cycles in which no other instruction is issued; 0: issued together with the one before it.
        words: words that a transfer moves per cycle; at least `busy` cycles. 0: always `busy`.
        alone: whether no other instruction is issued in the same cycle.
        units: alternative execution units; the first free one is used.
        unit_busy: cycles for which the unit is occupied.
        holds: cycles from the issue in which only vector instructions are issued.
        source: source of these figures, if it is not the source of the pipeline.
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


class Pipeline(Struct, frozen=True):
    """Pipeline of a core.

    Attributes:
        source: documents or measurements of the figures.
        error: maximum error of estimates for whole models, in percent.
        width: maximum number of instructions issued per cycle.
        taken: additional cycles of a taken branch.
        missed: additional cycles of a mispredicted branch: the less frequent direction.
        issues: figures by class, including inherited ones, see `CLASSES`.
        never: pairs of classes, the older one first, that are not issued together.
        apart: pairs of classes, with the cycles after the older one in which the younger one is not issued.
        leads: pairs of classes, with the cycles after the older one in which the younger one is not issued as
            the second of two instructions.
        halfwords: whether only 16-bit instructions are issued together.
        one_of: classes, one of which must be in each pair that is issued together; empty: any classes.
        banks: whether two loads are issued together only from the same base, and from odd and even words.
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
    """Yield a class and its ancestors, the nearest one first."""
    while name:
        yield name
        name = CLASSES[name]
