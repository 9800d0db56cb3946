from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from microfold.errors import InputError, UnsupportedModelError
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Node, Value
from microfold.ir.text import parse, to_text
from microfold.ir.types import Array, Tensor
from microfold.passes.context import Decision, PassContext
from microfold.transform.requested.slide_window import SlideWindow, Sliding, slide_graph
from microfold.transform.requested.sliding.tracking import Tracking
from tests.random_graphs import graphs
from tests.transform.check import check_declined
from tests.transform.requested.sliding.nets import WindowNets, check_frames, frames_of

BEFORE = """\
graph @g(%x: int8[1,6,1,2] q(0.5, 3)) -> (%z) {
  %w = constant int8[1,3,1,2] q(0.25, 0) [1, 2, 3, 4, 5, 6]
  %y: int8[1,4,1,2] q(0.5, -1) = depthwise_conv2d(%x, %w) \
{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}
  %z: int8[1,1,1,2] q(0.5, -1) = max_pool2d(%y) {size=(4, 1), strides=(4, 1), padding=((0, 0), (0, 0))}
}
"""
AFTER = """\
graph @g(%x: int8[1,1,1,2] q(0.5, 3)) -> (%z) {
  state %x_kept: int8[1,3,1,2] q(0.5, 3) initial [3, 3, 3, 3, 3, 3] next %x_window
  state %y_kept: int8[1,4,1,2] q(0.5, -1) initial [-1, -1, -1, -1, -1, -1, -1, -1] next %y_window
  %x_window: int8[1,3,1,2] q(0.5, 3) = shift_in(%x_kept, %x) {axis=1}
  %w = constant int8[1,3,1,2] q(0.25, 0) [1, 2, 3, 4, 5, 6]
  %y: int8[1,1,1,2] q(0.5, -1) = depthwise_conv2d(%x_window, %w) \
{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}
  %y_window: int8[1,4,1,2] q(0.5, -1) = shift_in(%y_kept, %y) {axis=1}
  %z: int8[1,1,1,2] q(0.5, -1) = max_pool2d(%y_window) {size=(4, 1), strides=(4, 1), padding=((0, 0), (0, 0))}
}
"""


def slide(graph: Graph, axis: int, step: int | None = None) -> tuple[Graph, Sliding]:
    return slide_graph(graph, axis, step, PassContext())


def net(body: str, given: str = "int8[1,8,1,2] q(0.5, 0)") -> Graph:
    """A graph of one input and one output, `y`."""
    return parse(f"graph @g(%x: {given}) -> (%y) {{\n{body}}}\n")


def window(op: str, result: str, value: str = "%x", to: str = "%a", *, rows: str = "(0, 0)") -> str:
    """A convolution of three rows with weights of its own."""
    return (
        f"  {to}w = constant int8[2,3,1,2] q(0.25, 0) [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]\n"
        f"  {to}: int8[{result}] q(0.5, 0) = {op}({value}, {to}w) "
        f"{{strides=(1, 1), dilations=(1, 1), padding=({rows}, (0, 0))}}\n"
    )


def test_text() -> None:
    graph = parse(BEFORE)
    run = SlideWindow(axis=1)(graph)
    assert to_text(run) == AFTER
    found, sliding = slide(graph, 1)
    assert to_text(found) == AFTER
    assert (sliding.step, sliding.frames, sliding.warmup_runs) == (1, 6, 6)
    assert (sliding.macs, sliding.window_macs) == (6, 24)
    assert [(k.tensor, k.rows, k.added, k.bytes) for k in sliding.kept] == [("x", 3, 1, 6), ("y", 4, 1, 8)]
    check_frames(graph, run, sliding)


def test_nothing_asked() -> None:
    check_declined(SlideWindow(), BEFORE)


def test_more_frames_at_once() -> None:
    graph = parse(BEFORE)
    for step in (2, 3):
        run, sliding = slide(graph, 1, step)
        assert (sliding.step, sliding.warmup_runs) == (step, -(-6 // step))
        assert run.inputs[0].type.shape == (1, step, 1, 2)
        check_frames(graph, run, sliding)
    with pytest.raises(UnsupportedModelError, match="a run of 5 of 6 frames would not compute less"):
        slide(graph, 1, 5)
    for step in (0, 6, 7):
        with pytest.raises(InputError, match=f"fewer than the 6 of its window; got {step}"):
            slide(graph, 1, step)


def test_strides_say_how_many_frames_a_run_takes() -> None:
    text = BEFORE.replace("int8[1,4,1,2]", "int8[1,2,1,2]", 1).replace("strides=(1, 1)", "strides=(2, 1)", 1)
    graph = parse(text.replace("size=(4, 1), strides=(4, 1)", "size=(2, 1), strides=(2, 1)"))
    run, sliding = slide(graph, 1)
    assert sliding.step == 2
    check_frames(graph, run, sliding)
    # The last frame is in the window, but the strides do not reach it.
    assert [k.rows for k in sliding.kept] == [4, 2]
    with pytest.raises(InputError, match="must be a multiple of 2"):
        slide(graph, 1, 3)


@pytest.mark.parametrize("seed", range(60))
def test_random_networks(seed: int) -> None:
    _check(WindowNets(seed))


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_random_networks_that_pad(seed: int) -> None:
    """Whatever is not refused is exact: padding that no output follows from, say."""
    _check(WindowNets(seed, padded=0.3))


def _check(nets: WindowNets) -> None:
    graph = nets.draw()
    try:
        run, sliding = slide(graph, nets.axis)
    except UnsupportedModelError:
        return
    check_frames(graph, run, sliding)


def test_most_random_networks_slide() -> None:
    def slides(seed: int) -> bool:
        nets = WindowNets(seed)
        graph = nets.draw()
        try:
            return bool(slide(graph, nets.axis)[0].state)
        except UnsupportedModelError:
            return False

    assert sum(map(slides, range(60))) > 35


@given(graphs())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_graphs(graph: Graph) -> None:
    """Any operators, along any axis: refused, or exact."""
    if len(graph.inputs) != 1 or graph.state:
        return
    for axis in range(graph.inputs[0].type.rank):
        try:
            run, sliding = slide(graph, axis)
        except (UnsupportedModelError, InputError):
            continue
        check_frames(graph, run, sliding)


def test_padding_in_front_that_the_last_row_does_not_see() -> None:
    """A causal network whose output is that of the last frame."""
    last = "  %y: int8[1,1,1,2] q(0.5, 0) = strided_slice(%b) "
    last += "{begin=(0, 7, 0, 0), size=(1, 1, 1, 2), strides=(1, 1, 1, 1)}\n"
    body = window("conv2d", "1,8,1,2", rows="(2, 0)") + window("conv2d", "1,8,1,2", "%a", "%b", rows="(2, 0)")
    graph = net(body + last)
    run, sliding = slide(graph, 1)
    # Neither are rows computed that it does not follow from.
    assert (sliding.macs, sliding.window_macs) == (24, 192)
    check_frames(graph, run, sliding)
    with pytest.raises(
        UnsupportedModelError, match="it pads the axis: its rows read 2 before the first of 8"
    ):
        slide(net(body + "  %y: int8[1,8,1,2] q(0.5, 0) = clip(%b) {minimum=0.0, maximum=6.0}\n"), 1)


def test_only_the_last_frame_counts() -> None:
    """Nothing to keep."""
    last = "  %y: int8[1,1,1,2] q(0.5, 0) = strided_slice(%a) "
    last += "{begin=(0, 7, 0, 0), size=(1, 1, 1, 2), strides=(1, 1, 1, 1)}\n"
    graph = net("  %a: int8[1,8,1,2] q(0.5, 0) = clip(%x) {minimum=-1.0, maximum=6.0}\n" + last)
    run, sliding = slide(graph, 1)
    assert not run.state
    check_frames(graph, run, sliding)


BEHIND = """\
  %y: int8[1,1,1,2] q(0.5, 0) = average_pool2d(%b) {size=(6, 1), strides=(1, 1), padding=((0, 0), (0, 0))}
"""
REFUSALS = {
    "normalises along the axis": (
        "  %a: int8[1,8] q(0.00390625, -128) = softmax(%x) {beta=1.0}\n"
        "  %y: int8[1,8] q(0.00390625, -128) = clip(%a) {minimum=0.0, maximum=0.5}\n",
        "int8[1,8] q(0.5, 0)",
    ),
    "accumulates along the axis": (
        "  %y: float32[1,8] = cumsum(%x) {axis=1, exclusive=false, reverse=false}\n",
        "float32[1,8]",
    ),
    "concatenates along the axis": (
        "  %a: float32[1,16] = concatenate(%x, %x) {axis=1}\n"
        "  %y: float32[1,16] = clip(%a) {minimum=0.0, maximum=0.5}\n",
        "float32[1,8]",
    ),
    "combines rows with other rows": (
        "  %y: float32[1,8,8] = batch_matmul(%x, %x) "
        "{transpose_first=false, transpose_second=true, out=float32}\n",
        "float32[1,8,2]",
    ),
    "reverses the rows": (
        "  %y: float32[1,8] = strided_slice(%x) {begin=(0, 7), size=(1, 8), strides=(1, -1)}\n",
        "float32[1,8]",
    ),
    "reads %m, which depends on all rows": (
        "  %m: float32[1,1] = mean(%x) {axes=(1,), keep_dims=true, out=float32}\n"
        "  %y: float32[1,8] = sub(%x, %m) {out=float32}\n",
        "float32[1,8]",
    ),
    "reads different elements of float32[1,8] for different rows": (
        "  %k = constant float32[1,8] [1, 2, 3, 4, 5, 6, 7, 8]\n"
        "  %y: float32[1,8] = add(%x, %k) {out=float32}\n",
        "float32[1,8]",
    ),
    "advance by different numbers of rows": (
        "  %a: float32[1,4] = strided_slice(%x) {begin=(0, 0), size=(1, 4), strides=(1, 2)}\n"
        "  %b: float32[1,4] = strided_slice(%x) {begin=(0, 4), size=(1, 4), strides=(1, 1)}\n"
        "  %y: float32[1,4] = add(%a, %b) {out=float32}\n",
        "float32[1,8]",
    ),
    "would not compute less than a run of all: reshape %y combines all rows": (
        "  %y: float32[16] = reshape(%x) {shape=(16,)}\n",
        "float32[2,8]",
    ),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_refusals(reason: str) -> None:
    body, given = REFUSALS[reason]
    graph = net(body, given)
    with pytest.raises(UnsupportedModelError) as caught:
        slide(graph, 1)
    text = str(caught.value)
    assert reason in text
    assert ("train the network without padding" in text) == ("pads the axis" in text)


def test_all_problems_at_once_and_what_would_remain() -> None:
    """What follows from one of them is none."""
    body = window("conv2d", "1,8,1,2", rows="(1, 1)") + window("conv2d", "1,6,1,2", "%a", "%b", rows="(0, 0)")
    graph = net(body + BEHIND)
    declined: list[Decision] = []
    with pytest.raises(UnsupportedModelError) as caught:
        slide_graph(graph, 1, None, PassContext(sink=declined.append))
    (problem,) = caught.value.problems
    assert problem.where == "conv2d %a"
    # Of 8 rows, the first and the last follow from padding; so do those of %b that read them: 3 are new.
    assert "72 of 168 MACs (42.9%) would remain" in problem.hint
    assert [(d.where, d.fired) for d in declined] == [("conv2d %a", False)]


@pytest.mark.parametrize("seed", range(2000, 2030))
def test_rows_that_would_be_kept(seed: int) -> None:
    """They are those that the window network computes again for the next frames."""
    nets = WindowNets(seed, padded=0.5)
    graph = nets.draw()
    try:
        tracking = Tracking(graph, nets.axis, None)
    except InputError:
        return
    rng = np.random.default_rng(seed)
    length = graph.inputs[0].type.shape[nets.axis]
    frames = frames_of(graph, nets.axis, length + tracking.step, rng)
    first, second = (
        _values(graph, np.concatenate(frames[start : start + length], nets.axis))
        for start in (0, tracking.step)
    )
    pure = {tracking.frames: tracking.whole(tracking.frames)}
    for node in graph.nodes:
        if node.output in tracking.tracks:
            start, stop = pure[node.output] = tracking.pure_rows(node, pure)
            axis, moves = tracking.tracks[node.output].axis, tracking.moves(node.output)
            for row in range(start, stop - moves):
                before, after = (
                    first[node.output].take(row + moves, axis),
                    second[node.output].take(row, axis),
                )
                np.testing.assert_array_equal(before, after)


def _values(graph: Graph, frames: Array) -> dict[Value, Array]:
    found: dict[Value, Array] = {}

    def collect(node: Node, results: tuple[Tensor, ...]) -> None:
        found.update(zip(node.outputs, (result.data for result in results), strict=True))

    Interpreter(graph).run(frames, observe=collect)
    return found


def test_what_cannot_slide() -> None:
    graph = parse(BEFORE)
    with pytest.raises(InputError, match=r"must be one of \[1, 3\] of the input .*; got 2"):
        slide(graph, 2)
    with pytest.raises(InputError, match="got 4"):
        slide(graph, 4)
    constant = "graph @g(%x: float32[4]) -> (%k) {\n  %k = constant float32[2] [1.0, 2.0]\n}\n"
    with pytest.raises(UnsupportedModelError, match="its outputs must depend on its input; none does"):
        slide(parse(constant), 0)
    two = parse("graph @g(%a: float32[4], %b: float32[4]) -> (%y) {\n  %y: float32[4] = add(%a, %b)\n}\n")
    with pytest.raises(UnsupportedModelError, match="sliding requires a network with exactly one input"):
        slide(two, 0)
    with pytest.raises(UnsupportedModelError, match="already keeps state between runs"):
        slide(parse(AFTER.replace("1,1,1,2] q(0.5, 3))", "1,1,1,2] q(0.5, 3))")), 3)
