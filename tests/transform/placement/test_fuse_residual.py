from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node
from microfold.ir.text import parse
from microfold.ir.types import Array
from microfold.lowering import selection_result
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.add import Add
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.options import Options
from microfold.passes.context import Decision, PassContext
from microfold.program import Program
from microfold.transform.placement.fuse_residual import fuse_residual
from tests.kernels import graphs
from tests.kernels.cores import assert_exact
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled
from tests.transform.arenas import Counted
from tests.transform.check import check_declined, check_rewrite

WITHOUT = PassContext(disabled_pass=("fuse_residual",))
CONV = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}"
FUSED = CONV.replace("}", ", out=int8 q(0.3, -5)}")
W = "%w = constant int8[2,1,1,2] q(axis=0, scales=[0.5, 0.25], zero_points=0) [100, -50, 7, 90]"
X = "%x: int8[1,3,3,2] q(0.1, 3)"
T = "int8[1,3,3,2]"


def fused_node(node: Node) -> int:
    return sum(len(step.operands) for step in node.epilogue)


def fused(graph: Graph) -> int:
    return sum(map(fused_node, graph.nodes))


ONE = f"""
    graph @g({X}, %r: {T} q(0.2, -7)) -> (%y) {{
      {W}
      %c: {T} q(0.3, -5) = conv2d(%x, %w) {CONV} | clip() {{minimum=0.0, maximum=6.0}}
      %y: {T} q(0.4, 9) = add(%c, %r) | clip() {{minimum=-1.0, maximum=inf}}
    }}
    """
ONE_FUSED = f"""
    graph @g({X}, %r: {T} q(0.2, -7)) -> (%y) {{
      {W}
      %y: {T} q(0.4, 9) = conv2d(%x, %w) {FUSED} | clip() {{minimum=0.0, maximum=6.0}} | add(%r) | clip() {{minimum=-1.0, maximum=inf}}
    }}
    """  # noqa: E501


TWO = f"""
    graph @g({X}, %r: {T} q(0.2, -7)) -> (%z) {{
      {W}
      %c: {T} q(0.3, -5) = conv2d(%x, %w) {CONV}
      %y: {T} q(0.4, 9) = add(%r, %c)
      %d: {T} q(0.3, -5) = conv2d(%y, %w) {CONV}
      %e: {T} q(0.3, -5) = conv2d(%r, %w) {CONV}
      %z: {T} q(0.4, 9) = add(%d, %e)
    }}
    """


def test_sum_into_convolution() -> None:
    decisions = check_rewrite(fuse_residual, ONE, ONE_FUSED, PassContext(arenas=Counted()))
    assert decisions[0].reason == "into conv2d %c: the arena has 1 bytes instead of 2"


def test_sum_of_float32() -> None:
    source, wanted = (
        f"""
        graph @g(%x: float32[1,3,3,2], %r: float32[1,3,3,2]) -> (%y) {{
          %w = constant float32[2,1,1,2] [1.0, -0.5, 7.0, 9.0]
          {nodes}
        }}
        """
        for nodes in (
            f"%c: float32[1,3,3,2] = conv2d(%x, %w) {CONV}\n"
            "%y: float32[1,3,3,2] = add(%r, %c) | clip() {minimum=0.0, maximum=inf}",
            f"%y: float32[1,3,3,2] = conv2d(%x, %w) {CONV} | add(%r) | clip() {{minimum=0.0, maximum=inf}}",
        )
    )
    check_rewrite(fuse_residual, source, wanted, PassContext(arenas=Counted()))


def test_what_no_kernel_computes_is_not_tried() -> None:
    counted = Counted()
    costs = PassContext(arenas=counted, node_cost=lambda node, _: None if fused_node(node) else 1.0)
    check_declined(fuse_residual, ONE, "no kernel of the target computes conv2d with it", costs)
    assert counted.asked == 0


def test_either_operand_of_several_sums() -> None:
    """A sum of two convolutions goes into one of them; which one is as good is the first one's."""
    fused_too = f"""
    graph @g({X}, %r: {T} q(0.2, -7)) -> (%z) {{
      {W}
      %y: {T} q(0.4, 9) = conv2d(%x, %w) {FUSED} | add(%r)
      %e: {T} q(0.3, -5) = conv2d(%r, %w) {CONV}
      %z: {T} q(0.4, 9) = conv2d(%y, %w) {FUSED} | add(%e)
    }}
    """
    check_rewrite(fuse_residual, TWO, fused_too, PassContext(arenas=Counted()))


def test_only_where_the_arena_is_fullest() -> None:
    """First what is alive there, then what is alive where it is fullest after that."""
    result = fuse_residual(parse(TWO), PassContext(arenas=Counted(full=("d",))))
    assert [node.output.name for node in result.nodes if node.epilogue] == ["z"]
    result = fuse_residual(parse(TWO), PassContext(arenas=Counted(full=("e",))))
    (node,) = (node for node in result.nodes if node.epilogue)
    assert node.inputs[0] is result.inputs[1], "the second operand is the one that is alive"
    reason = "%c does not determine the size of the arena"
    check_declined(fuse_residual, ONE, reason, PassContext(arenas=Counted(full=())))


def test_limit_of_ram() -> None:
    """As few as make the model fit."""
    for needed in (1, 2):
        counted = Counted(lambda graph, least=needed: fused(graph) >= least, limited=True)
        decisions: list[Decision] = []
        result = fuse_residual(parse(TWO), PassContext(arenas=counted, sink=decisions.append))
        assert fused(result) == needed
        assert counted.asked <= 13
        assert sum(d.fired for d in decisions) == needed
        assert any("the model fits without" in d.reason for d in decisions) == (needed == 1)
    none = Counted(lambda graph: fused(graph) > 2, limited=True)
    check_declined(fuse_residual, TWO, "nothing fits", PassContext(arenas=none))


@pytest.mark.parametrize(
    ("nodes", "outputs", "reason"),
    [
        ("%y: TYPE q(0.4, 9) = add(%c, %r)", "%y, %c", "%c has other readers"),
        ("%y: TYPE q(0.4, 9) = add(%c, %c)", "%y", "%c has other readers"),
        ("%y: TYPE q(0.4, 9) = add(%c, %k)", "%y", "%k is constant"),
        ("%y: TYPE q(0.4, 9) = add(%c, %b)", "%y", "an operand is broadcast"),
        ("%y: TYPE q(0.4, 9) = add(%r, %r)", "%y, %c", ""),
        ("%y: TYPE q(0.4, 9) = sub(%c, %r)", "%y", ""),
    ],
)
def test_declined(nodes: str, outputs: str, reason: str) -> None:
    text = f"""
    graph @g({X}, %r: {T} q(0.2, -7), %b: int8[1,1,1,2] q(0.2, -7)) -> ({outputs}) {{
      {W}
      %k = constant {T} q(0.2, 0) {list(range(18))}
      %c: {T} q(0.3, -5) = conv2d(%x, %w) {CONV}
      {nodes.replace("TYPE", T)}
    }}
    """
    check_declined(fuse_residual, text, reason, PassContext(arenas=Counted()))


def test_unknown_arenas() -> None:
    check_declined(fuse_residual, ONE, "the size of the arena is unknown")


def test_no_plan_is_made_without_such_sums() -> None:
    counted = Counted()
    fuse_residual(graphs.conv2d_graph(4, 4, 2, 2), PassContext(arenas=counted))
    assert counted.asked == 0


def lateral_graph(side: int = 16, channels: int = 8, filters: int = 32, behind: int = 8) -> Graph:
    """A step of a feature pyramid: a wide image, and the deeper one that it is added to, twice as large.

    Args:
        behind: filters of the convolution that smooths it.
    """
    lateral = graphs.conv2d_graph(side, side, channels, filters, (1, 1))
    deep = graphs.int8_input("deep", (1, side // 2, side // 2, filters), 0.08, 2)
    larger = make_node(ResizeNearestNeighbor((side, side), False, False), [deep], ["larger"])
    (convolution,) = lateral.nodes
    total = make_node(Add(graphs.int8_element(0.09, 4)), [larger.output, convolution.output], ["total"])
    nodes = (larger, convolution, total)
    graph = Graph("lateral", (*lateral.inputs, deep), total.outputs, nodes, lateral.constants)
    return graphs.append_conv2d(graph, behind, (3, 3))


def block_graph() -> Graph:
    """A residual block that does not widen: only the lines under the window are saved."""
    graph = graphs.append_conv2d(graphs.conv2d_graph(32, 32, 16, 16, padding=((1, 1), (1, 1))), 16, (3, 3))
    first, second = graph.nodes
    padded = make_node(
        Conv2D((1, 1), (1, 1), ((1, 1), (1, 1)), graphs.int8_element()), second.inputs, ["again"]
    )
    total = make_node(Add(graphs.int8_element(0.09, 4)), [padded.output, graph.inputs[0]], ["total"])
    constants: dict[Value, Array] = dict(graph.constants)
    return Graph("block", graph.inputs, total.outputs, (first, padded, total), constants)


def build(
    graph: Graph, core: str, options: Options | None = None, context: PassContext | None = None
) -> Program:
    return compile_graph(graph, target.load(core), options, context=context)


def names(program: Program) -> list[str]:
    return [layer.kernel.name for layer in program.layers]


@pytest.mark.parametrize(("core", "behind"), [("cortex-m0plus", 8), ("cortex-m4", 24), ("cortex-m7", 8)])
def test_wide_result_takes_no_arena(core: str, behind: int) -> None:
    """The sum lies over the enlarged image; neither the lateral one nor another result has a place."""
    graph = lateral_graph(behind=behind)
    apart, together = build(graph, core, context=WITHOUT), build(graph, core)
    assert any(name.endswith("_residual") for name in names(together))
    wide, narrow = 16 * 16 * 32, 16 * 16 * 8
    assert apart.arena.size >= 2 * wide
    # The image is there while the deep one, which has as many bytes, is enlarged.
    assert together.arena.size <= wide + 2 * narrow + 512


LEAST_RAM = Options(objective="ram=1")


def test_no_arena_for_much_time() -> None:
    """Weights in floating-point registers, which such sums do not have, save time."""
    decisions: list[Decision] = []
    told = PassContext(sink=decisions.append)
    program = build(lateral_graph(), "cortex-m4", Options(optimize="speed"), told)
    assert "s8_conv2d__dsp_fpu" in names(program)
    (decision,) = (each for each in decisions if each.pass_name == "fuse_residual")
    assert not decision.fired


def test_less_than_lines_under_a_window() -> None:
    graph = graphs.append_conv2d(block_graph(), 16, (3, 3))
    graph = graphs.append_conv2d(graph, 16, (3, 3))
    apart, together = (build(graph, "cortex-m4", LEAST_RAM, context) for context in (WITHOUT, None))
    assert any(name.endswith("_residual") for name in names(together))
    # A line and a pixel, but for a block of four pixels.
    assert together.arena.size <= apart.arena.size - (33 * 16 - 64)


def test_ram_that_is_met_only_so() -> None:
    graph = lateral_graph(behind=24)
    limit = build(graph, "cortex-m4").arena.size
    options = Options(ram=limit)
    assert build(graph, "cortex-m4", options, WITHOUT).stream is not None
    program = build(graph, "cortex-m4", options)
    assert program.arena.size <= limit
    assert program.stream is None
    assert any(name.endswith("_residual") for name in names(program))


def test_no_rows_of_such_layers() -> None:
    """Where rows are handed in, convolutions and sums stay apart."""
    program = build(lateral_graph(), "cortex-m4", Options(io="rows"))
    assert not any(name.endswith("_residual") for name in names(program))


def test_host() -> None:
    for graph in (lateral_graph(), block_graph(), lateral_graph(9 * 2, 3, 7)):
        program = build(graph, "host", LEAST_RAM)
        assert any(name.endswith("_residual") for name in names(program))
        assert_exact(program, 6)


def no_reason(*_: object) -> None:
    """Whatever it costs."""


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(["cortex-m0plus", "cortex-m4", "cortex-m55"]))
def test_simulated(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a block is a larger part of the time than is given for arena."""
    need_tools(*CROSS_TOOLS)
    monkeypatch.setattr(selection_result, "worse", no_reason)
    program = build(lateral_graph(), core)
    assert any(name.endswith("_residual") for name in names(program))
    assert_exact(program, 4)
