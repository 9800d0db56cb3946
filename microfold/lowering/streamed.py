"""A model with streamed layers, and the cost of its calls and copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from microfold.analysis.ranges import Ranges
from microfold.ir.node import Value
from microfold.kernels.call import KernelCall
from microfold.kernels.selection.candidates import (
    Candidate,
    LayerCandidates,
    least_cost,
    lowered_calls,
    run_cost,
)
from microfold.kernels.selection.objective import SelectionFigures
from microfold.lowering.choose import ChosenKernels
from microfold.plan.stream.check_memory import check_memory
from microfold.plan.stream.memory import StreamMemory
from microfold.plan.stream.planner import StreamPlanner
from microfold.plan.stream.row_node import RowNode, as_row_node, following

# Cycles per copied byte, including the loops and calls of the copies.
CYCLES_PER_COPIED_BYTE = 1.0
# A plan is slow if its kernels need this many times the cycles of the fastest kernels.
SLOW = 1.1


class Streamed(Struct, frozen=True, eq=False, dict=True):
    """A model that streams some of its layers.

    Attributes:
        rankings: all layers, with the kernels considered for them.
        chosen: kernel of each layer.
        selection: exact choice of the kernels; `with_kernels` may have replaced some of them.
        calls: calls of the kernels.
        ranges: proved ranges of the integers of the graph.
    """

    planner: StreamPlanner
    rankings: Sequence[LayerCandidates]
    chosen: Sequence[Candidate]
    selection: ChosenKernels
    calls: Sequence[KernelCall]
    memory: StreamMemory
    ranges: Ranges

    def with_kernels(self, chosen: Sequence[Candidate]) -> Streamed:
        """Return the model with other kernels."""
        if all(one is other for one, other in zip(self.chosen, chosen, strict=True)):
            return self
        found = streamed(self.planner, self.rankings, chosen, self.selection, self.ranges)
        check_memory(found.memory, [candidate.kernel for candidate in chosen])
        return found

    @property
    def rings(self) -> list[Value]:
        """Values whose rows are in ring buffers."""
        return [value for region in self.planner.regions for value in region.rings]

    @property
    def carried(self) -> list[Value]:
        """Values whose rows are in copied line buffers."""
        return [value for region in self.planner.regions for value in region.carried]

    @property
    def cost(self) -> float:
        """Estimated cycles of the layers' calls, and of the copies of rows."""
        return run_cost(self.rankings, self.chosen) + self.moves

    @property
    def moves(self) -> float:
        """Estimated cycles of the copies of rows."""
        return CYCLES_PER_COPIED_BYTE * self.memory.moved

    @property
    def is_slow(self) -> bool:
        """Whether the RAM forced the choice of kernels that are slower than the fastest ones."""
        return run_cost(self.rankings, self.chosen) > SLOW * least_cost(self.rankings)

    @cached_property
    def flash(self) -> int:
        """Estimated bytes of constants and code."""
        return self.selection.flash_of(self.chosen)

    @property
    def figures(self) -> SelectionFigures:
        """Time and memory of an inference."""
        return SelectionFigures(self.cost, self.flash, self.memory.size)


def streamed(
    planner: StreamPlanner,
    rankings: Sequence[LayerCandidates],
    chosen: Sequence[Candidate],
    selection: ChosenKernels,
    ranges: Ranges,
) -> Streamed:
    """Return a partition with its kernels and its memory plan; for arguments see `Streamed`."""
    kernels, calls = lowered_calls(rankings, chosen)
    memory = planner.plan(kernels, calls)
    return Streamed(planner, rankings, chosen, selection, calls, memory, ranges)


def with_rows(node: RowNode, width: int, made: Mapping[Value, RowNode]) -> RowNode | str:
    """Return the node with calls for several rows, or for the rows that the last node in `made` provides."""
    before = [made[value] for value in node.node.operands if value in made]
    if not before:
        return as_row_node(node.layer, width)
    single = as_row_node(node.layer)
    return following(single, before[-1], width) if not isinstance(single, str) else single


def with_rows_per_step(node: RowNode, width: int) -> RowNode | str:
    """Return the node with calls for several rows."""
    wide = as_row_node(node.layer, width)
    return wide if isinstance(wide, str) else wide.addressed(node.by_address)
