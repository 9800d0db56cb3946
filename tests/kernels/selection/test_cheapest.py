"""Selection takes the kernel that really needs the fewest cycles, where several come close."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import Candidate, Guidance, candidates
from microfold.lowering import scope
from microfold.options import Options
from microfold.verification import verify
from tests.kernels.choice import candidates_of
from tests.kernels.graphs import NO_PADDING, conv2d_graph, depthwise_conv2d_graph, fully_connected_graph
from tests.kernels.random_networks import merge
from tests.kernels.thumb import layer_costs
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

SAME = ((1, 1), (1, 1))
# Kernels whose estimate is larger than this many times the cheapest one's are no rivals.
RIVAL = 2.0
# By how much the chosen one may be slower than the fastest: on few outputs, `s8_conv2d__dsp_fpu` is so.
SLACK = 1.15


def _graphs() -> list[Graph]:
    return [
        conv2d_graph(9, 9, 1, 8, (3, 3), padding=SAME),
        conv2d_graph(9, 9, 8, 8, (3, 3), padding=SAME),
        conv2d_graph(9, 9, 16, 6, (3, 3), strides=(2, 2)),
        conv2d_graph(8, 8, 12, 10, (1, 1), padding=NO_PADDING),
        conv2d_graph(1, 2, 24, 8, (1, 1), padding=NO_PADDING),
        conv2d_graph(1, 12, 8, 16, (1, 3)),
        depthwise_conv2d_graph(9, 9, 8, (3, 3), padding=SAME),
        depthwise_conv2d_graph(9, 9, 8, (3, 3), padding=SAME, strides=(2, 2)),
        # Large enough for tiles, which Helium has beside four channels at a time.
        depthwise_conv2d_graph(12, 12, 32, (3, 3), padding=SAME),
        depthwise_conv2d_graph(16, 1, 24, (5, 1)),
        depthwise_conv2d_graph(4, 4, 12, (4, 4)),
        fully_connected_graph(64, 3),
        fully_connected_graph(120, 24),
    ]


def _rivals(found: Sequence[Candidate]) -> list[Candidate]:
    """What selection chooses, then those that come close."""
    fitting = [candidate for candidate in found if candidate.cost is not None]
    return [c for c in fitting if (c.cost or 0) <= RIVAL * (fitting[0].cost or 0)]


def test_better_kernels_of_a_core_supersede_others() -> None:
    for graph, name in (
        (conv2d_graph(9, 9, 8, 8, (3, 3)), "s8_conv2d__thumb2_4x1"),
        (fully_connected_graph(64, 8, batch=4), "s8_fully_connected__thumb2_4x1_rows"),
    ):
        for core, better in (("cortex-m3", False), ("cortex-m4", True)):
            (found,) = (c for c in candidates_of(graph, core) if c.kernel.name == name)
            assert (found.reason == "cores with dsp have better kernels") == better, (name, core)


@pytest.mark.parametrize(
    ("core", "graph", "name"),
    [
        ("cortex-m7", conv2d_graph(6, 6, 12, 30, (5, 2), largest=7), "s8_conv2d__dsp_tile"),
        ("cortex-m33", depthwise_conv2d_graph(13, 4, 3, (5, 3)), "s8_depthwise_conv2d__dsp_row"),
    ],
)
def test_cycles_decide_not_instructions(core: str, graph: Graph, name: str) -> None:
    best, *others = (c for c in candidates_of(graph, core) if c.cost is not None)
    assert best.kernel.name == name
    assert min(other.instructions or 0 for other in others) < (best.instructions or 0)


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize(
    "core", sampled(["cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "cortex-m0plus", "cortex-m3"], 2)
)
def test_the_chosen_kernel_is_about_the_fastest(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    graph, loaded = merge(_graphs()), target.load(core)
    # By which output a layer computes: in which order they come may depend on the kernels.
    counted: dict[int, dict[str, int]] = {}
    rank, deepest = 0, 1
    while rank < deepest:

        def ranked(layer: LayerContext, guidance: Guidance) -> list[Candidate]:
            nonlocal deepest
            rivals = _rivals(candidates(layer, guidance))
            deepest = max(deepest, len(rivals))
            one = rivals[min(rank, len(rivals) - 1)]  # noqa: B023
            return [replace(one, offers=one.offers[:1])]

        monkeypatch.setattr(scope, "candidates", ranked)
        program = compile_graph(graph, loaded, Options(optimize="speed"))
        calls = verify.input_sets([b.type for b in program.inputs], 4)[3:]
        (costs,) = layer_costs(program, calls)
        for layer, count in zip(program.layers, costs, strict=True):
            output = program.graph.outputs.index(layer.node.output)
            counted.setdefault(output, {}).setdefault(layer.kernel.name, count)
        rank += 1
    assert len(counted) == len(program.layers)
    assert deepest > 1, "no layer has rivals: the test compares nothing"
    wrong = [
        f"{layer.node.operands[0].type} -> {layer.outputs[0].type}: {found}"
        for layer in program.layers
        for found in [counted[program.graph.outputs.index(layer.node.output)]]
        if next(iter(found.values())) > SLACK * min(found.values())
    ]
    assert not wrong, f"on {core}, the first of each is chosen: " + "; ".join(wrong)
