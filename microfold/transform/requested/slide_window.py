"""Lets a network over a window of frames compute only new frames, and reuse earlier results.

    graph @g(%x: int8[6,8]) -> (%z) {             graph @g(%x: int8[1,8]) -> (%z) {
      %y: int8[6,8] = fully_connected(%x, …)        state %y_kept: int8[6,8] initial … next %y_window
      %z: int8[8] = mean(%y) {axes=(0,) …}    ->    %y: int8[1,8] = fully_connected(%x, …)
    }                                               %y_window: int8[6,8] = shift_in(%y_kept, %y) {axis=0}
                                                    %z: int8[8] = mean(%y_window) {axes=(0,) …}
                                                  }

The outputs of each run equal the outputs of the original network for the last frames of the window. Frames
before the first run count as zeros: states start with the values that the network computes from zeros.

The result is exact if every row depends on frames only, always in the same way. In two cases the pass rejects
a graph, and lists all places: padding along the axis reaches the outputs, or an operator combines all rows
into a result that still has rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from microfold.errors import InputError, Problem, UnsupportedModelError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, describe
from microfold.ir.rewrite import remove_dead_nodes
from microfold.ir.views import needs_no_code
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass
from microfold.transform.requested.sliding.build import Builder, KeptRows
from microfold.transform.requested.sliding.tracking import Tracking


@module_pass(opt_level=0)
class SlideWindow(Struct, frozen=True):
    """Computation of new rows only.

    Attributes:
        axis: axis of the input along which frames arrive; None leaves the graph unchanged.
        step: frames per run; None: the minimum that the network's strides allow.

    Raises:
        InputError: the axis does not exist, or a run cannot process this number of frames.
        UnsupportedModelError: rows do not depend on frames only.
    """

    axis: int | None = None
    step: int | None = None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        if self.axis is None:
            return graph
        return slide_graph(graph, self.axis, self.step, context)[0]


class Sliding(Struct, frozen=True, eq=False):
    """Description of the conversion of a graph over a window.

    Attributes:
        window: graph over all frames.
        axis: axis of its input along which frames arrive.
        step: frames per run.
        frames: frames of the window.
        macs, window_macs: multiply-accumulates of a run, and of a run over all frames.
        kept: values that keep rows between runs.
    """

    window: Graph
    axis: int
    step: int
    frames: int
    macs: int
    window_macs: int
    kept: tuple[KeptRows, ...]

    @property
    def warmup_runs(self) -> int:
        """Number of runs until the outputs do not depend on initial zero frames any more."""
        return -(-self.frames // self.step)


def slide_graph(graph: Graph, axis: int, step: int | None, context: PassContext) -> tuple[Graph, Sliding]:
    """Return the graph of one run, and the description of the conversion; see `SlideWindow`."""
    context = replace(context, pass_name="slide_window")
    _check(graph, axis)
    graph = remove_dead_nodes(graph)
    tracking = Tracking(graph, axis, step)
    problems = tracking.problem_list()
    whole = sum(node.macs() for node in graph.nodes)
    if problems:
        for problem in problems:
            context.declined(problem.where, problem.reason)
        padded = any("pads the axis" in problem.reason for problem in problems)
        problems[-1] = replace(problems[-1], hint=_remaining(tracking.macs(), whole, padded))
        raise UnsupportedModelError(graph.name, problems)
    if tracking.frames not in tracking.demanded:
        where, reason = f"graph {graph.name!r}", "its outputs must depend on its input; none does"
        raise UnsupportedModelError(graph.name, [Problem(where, reason)])
    for head in tracking.heads:
        context.declined(head, "it combines all rows, so that each run computes it completely")
    builder = Builder(tracking)
    result = builder.build()
    for kept in builder.kept:
        context.fired(
            f"%{kept.tensor}", f"{kept.rows} rows are kept, {kept.added} new in each run: {kept.bytes} bytes"
        )
    frames = tracking.tracks[tracking.frames].length
    if _operations(builder.computed) >= _operations(graph.nodes):
        where = f"graph {graph.name!r}"
        reason = f"a run of {tracking.step} of {frames} frames would not compute less than a run of all"
        if tracking.heads:
            reason += ": " + ", ".join(f"{describe(head)} combines all rows" for head in tracking.heads)
        raise UnsupportedModelError(graph.name, [Problem(where, reason, "run the network over its window")])
    macs = sum(node.macs() for node in result.nodes)
    context.fired(f"graph @{graph.name}", f"{macs} of {whole} MACs for each {tracking.step} frames")
    return result, Sliding(graph, axis, tracking.step, frames, macs, whole, tuple(builder.kept))


def _operations(nodes: Iterable[Node]) -> int:
    """Return the number of elementary operations of the nodes that need code."""
    return sum(node.operations() for node in nodes if not needs_no_code(node))


def _remaining(macs: int, whole: int, padded: bool) -> str:
    """Return how many MACs would remain if all problems were solved.

    Args:
        padded: whether padding is among the problems.
    """
    part = f" ({macs / whole:.1%})" if whole else ""
    unpadded = "train the network without padding along the axis (VALID), or " if padded else ""
    return (
        f"a run can reuse only rows that depend on frames only; with those, {macs} of {whole} MACs{part} "
        f"would remain: {unpadded}run it over its window"
    )


def _check(graph: Graph, axis: int) -> None:
    """Raise an error unless the graph has exactly one input with this axis, and no state."""
    where = f"graph {graph.name!r}"
    if len(graph.inputs) != 1:
        names = ", ".join(f"{value.name!r} {value.type}" for value in graph.inputs) or "none"
        reason = f"sliding requires a network with exactly one input; it has {names}"
        raise UnsupportedModelError(graph.name, [Problem(where, reason)])
    if graph.state or graph.signature.stateful:
        reason = "it already keeps state between runs, so that a run is not a window"
        raise UnsupportedModelError(graph.name, [Problem(where, reason, "remove --sliding")])
    shape = graph.inputs[0].type.shape
    if not 0 <= axis < len(shape) or shape[axis] < 2:
        axes = [index for index, extent in enumerate(shape) if extent > 1]
        raise InputError(
            f"the axis along which frames arrive must be one of {axes} of the input {graph.inputs[0].type}, "
            f"which have several elements; got {axis}"
        )
