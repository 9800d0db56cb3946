"""Rows where whole tensors would do as well: within a limit of RAM to be faster, without one to be smaller.

To search for rows takes several times as long as to select kernels for whole tensors. So first the rows of
the few layers are ranked that have to gain by it; what is ranked there, searches do not rank again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import accumulate

from microfold.errors import InputError
from microfold.ir import limits
from microfold.kernels.selection.cheapest import Candidate, Ranking, run_cost
from microfold.kernels.selection.smaller_arena import most_arena, rows_pay
from microfold.lowering.placement import misaligned
from microfold.lowering.stream import in_rows
from microfold.lowering.stream_cuts import Cuts
from microfold.lowering.stream_layers import stream_buffers, stream_places
from microfold.lowering.stream_search import Search
from microfold.lowering.streamed import Streamed
from microfold.options import Options
from microfold.plan.stream.planner import StreamPlanner
from microfold.support.frozen import frozen

# Where whole tensors fit a limit of RAM, rows are taken if these take so many times as long: rows take code
# of their own.
WORTHWHILE = 1.02
# Where the smallest rows take longer than whole tensors, but less than so many times as long, faster ones are
# looked for.
NEARLY = 1.02


@frozen(eq=False)
class Whole:
    """Whole tensors with their kernels.

    Attributes:
        needs: bytes of arena of each layer's call.
        flash: estimated bytes of constants and code.
    """

    rankings: Sequence[Ranking]
    chosen: Sequence[Candidate]
    needs: Sequence[int]
    arena: int
    flash: int

    @property
    def cost(self) -> float:
        """Cycles of a run."""
        return run_cost(self.rankings, self.chosen)

    def cost_of(self, index: int) -> float:
        """The same of a layer."""
        return run_cost([self.rankings[index]], [self.chosen[index]])


def faster_rows(whole: Whole, cuts: Cuts, rows: Callable[[], Streamed | Collection[InputError]]) -> bool:
    """Whether rows that fit the RAM are faster than whole tensors that fit.

    They can be where these have slower kernels than other RAM would let them have, and in the layers up to
    the fullest one, which are what is computed by rows.
    """
    cost = whole.cost
    slower = {i for i, r in enumerate(whole.rankings) if whole.cost_of(i) > run_cost([r], [r.candidates[0]])}
    fullest = max(range(len(whole.needs)), key=lambda index: whole.needs[index], default=0)
    least = cost - sum(max(_gain(whole, cuts, index), 0.0) for index in slower | {*range(fullest + 1)})
    if WORTHWHILE * least >= cost:
        return False
    found = rows()
    return isinstance(found, Streamed) and WORTHWHILE * found.cost < cost


def smaller_rows(whole: Whole, search: Search) -> Streamed | None:
    """Return rows that take no more time than whole tensors, and so much less RAM that it pays.

    None: there are none, or they are not looked for, because the arena is too large. All layers whose calls
    need more than the arena of such rows must be computed by rows, and so take no more time.
    """
    options, most = search.options, most_arena(whole.arena)
    over = [index for index, need in enumerate(whole.needs) if need > most]
    if most <= 0 or whole.arena > limits.STREAMED_BYTES or not over or search.cuts.whole_needs.at_ends > most:
        return None
    if not _takes_no_longer(whole, search.cuts, over):
        return None
    if not any(_by_rows(planner, whole, over) for planner in search.cuts.promising):
        return None
    found = in_rows(search)
    if isinstance(found, Streamed) and whole.cost < found.cost <= NEARLY * whole.cost:
        found = in_rows(Search(search.cuts, replace(options, ram=most + search.cuts.state)))
    if not isinstance(found, Streamed) or found.cost > whole.cost or not _is_aligned(found, options):
        return None
    size = found.memory.size
    return found if rows_pay(whole.arena, size, whole.flash, found.flash, options.optimize) else None


def _by_rows(planner: StreamPlanner, whole: Whole, layers: Sequence[int]) -> bool:
    """Return whether a cut computes all of some layers by rows."""
    calls = {each.layer.node for each in planner.planned if each.call is not None}
    return all(whole.rankings[index].layer.node not in calls for index in layers)


def _takes_no_longer(whole: Whole, cuts: Cuts, layers: Sequence[int]) -> bool:
    """Whether some layers together take no longer by rows; those that need most are looked at first."""
    order = sorted(layers, key=lambda index: -whole.needs[index])
    return all(gain >= 0 for gain in accumulate(_gain(whole, cuts, index) for index in order))


def _gain(whole: Whole, cuts: Cuts, index: int) -> float:
    """Cycles that rows save in a layer; minus infinity: it does not work by rows."""
    return whole.cost_of(index) - cuts.cost_by_rows(whole.rankings[index].layer.node)


def _is_aligned(found: Streamed, options: Options) -> bool:
    """Whether inputs and outputs lie where `check_alignment` wants them."""
    graph = found.planner.whole
    places = stream_places(graph, options)
    inputs, outputs = (stream_buffers(found, values, places) for values in (graph.inputs, graph.outputs))
    return not misaligned(inputs, outputs, options.align)
