"""Has a network over a window of frames take the new frames only, and keep what it computed before.

    graph @g(%x: int8[6,8]) -> (%z) {             graph @g(%x: int8[1,8]) -> (%z) {
      %y: int8[6,8] = fully_connected(%x, …)        state %y_kept: int8[6,8] initial … next %y_window
      %z: int8[8] = mean(%y) {axes=(0,) …}    ->    %y: int8[1,8] = fully_connected(%x, …)
    }                                               %y_window: int8[6,8] = shift_in(%y_kept, %y) {axis=0}
                                                    %z: int8[8] = mean(%y_window) {axes=(0,) …}
                                                  }

The outputs of each run are those of the network over the last frames, as many as its window has. Before the
first one there were frames of zeros: states begin as what the network computes from them.

That is exact where every row follows from frames alone, in the same way. Where padding along the axis
reaches the outputs, or an operator makes of all rows what has rows still, the graph is refused with all such
places.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from microfold.errors import InputError, Problem, UnsupportedModelError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, describe
from microfold.ir.rewrite import remove_dead_nodes
from microfold.ir.views import needs_no_code
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass
from microfold.support.frozen import frozen
from microfold.transform.requested.sliding.build import Builder, KeptRows
from microfold.transform.requested.sliding.tracking import Tracking


@module_pass(opt_level=0)
@frozen
class SlideWindow:
    """Compute new rows only.

    Attributes:
        axis: of the input, along which frames come; None leaves the graph as it is.
        step: frames that a run takes; None: the fewest that the network's strides allow.

    Raises:
        InputError: there is no such axis, or a run cannot take so many frames.
        UnsupportedModelError: rows do not follow from frames alone.
    """

    axis: int | None = None
    step: int | None = None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        if self.axis is None:
            return graph
        return slide_graph(graph, self.axis, self.step, context)[0]


@frozen(eq=False)
class Sliding:
    """What a graph over a window has become.

    Attributes:
        window: the graph over all frames.
        axis: of its input, along which frames come.
        step: frames that a run takes.
        frames: of the window.
        macs, window_macs: multiply-accumulates of a run, and of a run over all frames.
        kept: the values of which rows are kept.
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
        """Runs until outputs follow from no frame of zeros that was never given."""
        return -(-self.frames // self.step)


def slide_graph(graph: Graph, axis: int, step: int | None, context: PassContext) -> tuple[Graph, Sliding]:
    """The graph of a run, and what it was; see `SlideWindow`."""
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
        where, reason = f"graph {graph.name!r}", "its outputs must follow from its input; none does"
        raise UnsupportedModelError(graph.name, [Problem(where, reason)])
    for head in tracking.heads:
        context.declined(head, "it takes all rows together, so that each run computes it as a whole")
    builder = Builder(tracking)
    result = builder.build()
    for kept in builder.kept:
        context.fired(
            f"%{kept.tensor}", f"{kept.rows} rows are kept, {kept.added} new in each run: {kept.bytes} bytes"
        )
    frames = tracking.tracks[tracking.frames].length
    if _operations(builder.computed) >= _operations(graph.nodes):
        where = f"graph {graph.name!r}"
        reason = f"no run of {tracking.step} of {frames} frames would compute less than one of all"
        if tracking.heads:
            reason += ": " + ", ".join(f"{describe(head)} takes all rows together" for head in tracking.heads)
        raise UnsupportedModelError(graph.name, [Problem(where, reason, "run the network over its window")])
    macs = sum(node.macs() for node in result.nodes)
    context.fired(f"graph @{graph.name}", f"{macs} of {whole} MACs for each {tracking.step} frames")
    return result, Sliding(graph, axis, tracking.step, frames, macs, whole, tuple(builder.kept))


def _operations(nodes: Iterable[Node]) -> int:
    """Elementary operations of nodes that need code."""
    return sum(node.operations() for node in nodes if not needs_no_code(node))


def _remaining(macs: int, whole: int, padded: bool) -> str:
    """What else an answer to all problems would be worth; `padded`: padding is among the problems."""
    part = f" ({macs / whole:.1%})" if whole else ""
    unpadded = "train the network without padding along the axis (VALID), or " if padded else ""
    return (
        f"a run can reuse only rows that follow from frames alone; with those, {macs} of {whole} MACs{part} "
        f"would remain: {unpadded}run it over its window"
    )


def _check(graph: Graph, axis: int) -> None:
    """Raise unless there is one input with such an axis, and no state."""
    where = f"graph {graph.name!r}"
    if len(graph.inputs) != 1:
        names = ", ".join(f"{value.name!r} {value.type}" for value in graph.inputs) or "none"
        reason = (
            f"only a network with one input can slide; which of several does is not clear; it has {names}"
        )
        raise UnsupportedModelError(graph.name, [Problem(where, reason)])
    if graph.state or graph.signature.stateful:
        reason = "it keeps state from run to run already: its runs are not those of a window"
        raise UnsupportedModelError(graph.name, [Problem(where, reason, "leave --sliding away")])
    shape = graph.inputs[0].type.shape
    if not 0 <= axis < len(shape) or shape[axis] < 2:
        axes = [index for index, extent in enumerate(shape) if extent > 1]
        raise InputError(
            f"the axis along which frames come must be one of {axes} of the input {graph.inputs[0].type}, "
            f"those with several elements; it is {axis}"
        )
