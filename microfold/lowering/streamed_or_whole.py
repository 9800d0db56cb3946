"""Choice between streaming and whole tensors if both fit: the better one by the objective.

The search for streaming partitions needs several times as long as kernel selection for whole tensors.
Therefore lower bounds are compared first. They rank the kernels for rows only of the few layers that must
gain by streaming.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate

from msgspec import Struct

from microfold.errors import InputError
from microfold.ir import limits
from microfold.kernels.selection.candidates import Candidate, LayerCandidates, run_cost
from microfold.kernels.selection.objective import SelectionFigures
from microfold.lowering.placement import misaligned
from microfold.lowering.stream import best_streamed
from microfold.lowering.stream_layers import stream_buffers, stream_places
from microfold.lowering.streamed import Streamed
from microfold.lowering.streaming_search import ROWS_CODE, StreamingSearch
from microfold.options import Options
from microfold.plan.stream.planner import StreamPlanner


class WholeTensorPlan(Struct, frozen=True, eq=False):
    """Whole tensors with their kernels.

    Attributes:
        needs: bytes of arena that each layer's call needs.
    """

    rankings: Sequence[LayerCandidates]
    chosen: Sequence[Candidate]
    needs: Sequence[int]
    figures: SelectionFigures

    def cost_of(self, index: int) -> float:
        """Return the cycles of a layer in a run."""
        return run_cost([self.rankings[index]], [self.chosen[index]])


def why_not_faster(
    whole: WholeTensorPlan, search: StreamingSearch, rows: Callable[[], Streamed | Collection[InputError]]
) -> str | None:
    """Return why streaming within the RAM is not better than whole tensors that fit; None if it is better.

    It can be better in two kinds of layers: those with a slower kernel than they would have with more RAM,
    and the layers up to the one of largest need, which would be streamed.
    """
    slower = {i for i, r in enumerate(whole.rankings) if whole.cost_of(i) > run_cost([r], [r.candidates[0]])}
    fullest = max(range(len(whole.needs)), key=lambda index: whole.needs[index], default=0)
    gained = sum(max(_gain(whole, search, index), 0.0) for index in slower | {*range(fullest + 1)})
    now = whole.figures
    then = SelectionFigures(now.cycles - gained, search.reference.flash + ROWS_CODE, 0)
    if search.objective.value(then, search.reference) >= search.objective.value(now, search.reference):
        return "bounds of its cycles, flash and RAM are no better by the objective (not searched)"
    found = rows()
    if not isinstance(found, Streamed):
        return "no streaming partition fits the limits"
    return None if _is_better(found, whole, search) else _worse(found)


def smaller_rows(whole: WholeTensorPlan, search: StreamingSearch) -> Streamed | str:
    """Return a streamed model that is better than whole tensors and no slower, or why none was taken.

    All layers whose calls need more than the arena of that model must be streamed. Slower models are not
    searched for, even if they would be better.
    """
    objective, reference = search.objective, search.reference
    if not objective.arena:
        return "RAM has no price, and streaming saves RAM only"
    if not whole.needs or whole.figures.arena > limits.STREAMED_BYTES:
        return f"arenas must have 1 to {limits.STREAMED_BYTES:,} bytes to be streamed without a limit of RAM"
    # A smaller arena must be worth the code that streaming adds.
    paid = objective.flash * ROWS_CODE / max(reference.flash, 1) / objective.arena * reference.arena
    over = [index for index, need in enumerate(whole.needs) if need >= whole.figures.arena - paid]
    if not over or search.cuts.whole_needs.at_ends > whole.figures.arena - paid:
        return "a smaller arena would save less than the code of streaming costs (lower bound)"
    # Layers of the largest need are evaluated first.
    gains = (_gain(whole, search, index) for index in sorted(over, key=lambda index: -whole.needs[index]))
    if any(gained < 0 for gained in accumulate(gains)):
        return "the layers that need most RAM would be slower or cannot be streamed (bound of their cycles)"
    if not any(_by_rows(planner, whole, over) for planner in search.cuts.shortlist):
        return "no streaming partition contains all layers that need most RAM"
    found = best_streamed(search)
    if not isinstance(found, Streamed):
        return "no streaming partition was found"
    if found.cost > whole.figures.cycles or not _is_better(found, whole, search):
        return _worse(found)
    return found if _is_aligned(found, search.options) else "its inputs or outputs would not be aligned"


def _by_rows(planner: StreamPlanner, whole: WholeTensorPlan, layers: Sequence[int]) -> bool:
    """Return whether a streaming partition streams all of some layers."""
    calls = {each.layer.node for each in planner.planned if each.call is not None}
    return all(whole.rankings[index].layer.node not in calls for index in layers)


def _worse(found: Streamed) -> str:
    figures = found.figures
    return (
        "the best streaming partition found is slower, or no better by the objective: "
        f"{figures.cycles:,.0f} cycles, {figures.flash:,} B flash, {figures.arena:,} B arena"
    )


def _is_better(found: Streamed, whole: WholeTensorPlan, search: StreamingSearch) -> bool:
    objective, reference = search.objective, search.reference
    return objective.value(found.figures, reference) < objective.value(whole.figures, reference)


def _gain(whole: WholeTensorPlan, search: StreamingSearch, index: int) -> float:
    """Return the cycles that streaming saves in a layer; minus infinity if it cannot be streamed."""
    return whole.cost_of(index) - search.cuts.streamed_cost(whole.rankings[index].layer.node)


def _is_aligned(found: Streamed, options: Options) -> bool:
    """Return whether inputs and outputs are aligned as `check_alignment` requires."""
    graph = found.planner.whole
    places = stream_places(graph, options)
    inputs, outputs = (stream_buffers(found, values, places) for values in (graph.inputs, graph.outputs))
    return not misaligned(inputs, outputs, options.align)
