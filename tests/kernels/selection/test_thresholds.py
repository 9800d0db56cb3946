"""Thresholds of the policy: what is taken on one side of each is refused on the other."""

from __future__ import annotations

from typing import Any

import pytest

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.kernel import PACKED, Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection import cheapest, packed_weights, variants, worth
from microfold.kernels.selection.cheapest import Candidate
from microfold.kernels.selection.model import EXPANDED_SHARE, Model
from microfold.kernels.selection.policy import Case, Policy
from microfold.kernels.selection.shared_functions import BYTES_FOR_TIME, Option, select_smallest
from tests.kernels.choice import candidates_of, layer_of
from tests.kernels.graphs import conv2d_graph, depthwise_conv2d_graph, fully_connected_graph
from tests.kernels.packing.test_float16_weights import as_halves
from tests.kernels.random_networks import merge

SAME = ((1, 1), (1, 1))


def _reason(graph: Graph, node: Node, kernel: str, level: str = "balanced") -> str | None:
    """Why a kernel is refused for one of the layers of a model."""
    considered = cheapest.candidates(layer_of(graph, node=node), Policy(level, Model(graph)))
    (found,) = (c for c in considered if c.kernel.name == kernel)
    return found.reason


@pytest.mark.parametrize(
    ("level", "slower", "taken"),
    [
        (level, limit + step, step < 0)
        for level, limit in packed_weights.SLOWEST.items()
        for step in (-0.01, 0.01)
    ],
)
def test_float16_weights_may_take_so_much_longer(
    level: str, slower: float, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time(kernel: Kernel, layer: LayerContext) -> float:
        del layer
        return slower if kernel.trades & PACKED else 1.0

    # Many outputs for each weight: bytes that are saved cost more than an instruction each.
    graph = as_halves(conv2d_graph(12, 12, 16, 24, padding=SAME))
    monkeypatch.setattr(packed_weights, "_time", time)
    halves = [c for c in candidates_of(graph, level=level) if c.kernel.name.startswith("f32_f16w")]
    assert {c.reason is None for c in halves if c.kernel.name.endswith("fpu_4x4")} == {taken}


@pytest.mark.parametrize(("filters", "stay"), [(8, True), (40, False)])
def test_so_few_weights_of_four_bits_may_stay_bytes(filters: int, stay: bool) -> None:
    image = conv2d_graph(16, 16, 1, filters, (1, 1), largest=7)
    graph = merge([image, fully_connected_graph(64, 8, largest=7)])
    weights = image.nodes[0].operands[1]
    share = weights.type.size / Model(graph).four_bit_sizes.total()
    assert (share <= EXPANDED_SHARE) == stay
    assert (weights in Model(graph).expanded_weights) == stay


@pytest.mark.parametrize("step", [-1, 1])
def test_code_is_worth_its_part_of_the_time(step: int) -> None:
    """Two layers, which a function of their own makes faster by some of all time."""
    code = 600

    def option(name: str, cost: float) -> Option:
        kernel = Kernel()
        kernel.name, kernel.code = name, code  # type: ignore[misc]
        return Option(Candidate(kernel, cost, None), KernelCall(CFunction("t", name)), cost, 0)

    # Time that is worth as much as the code, of what is left of 10,000.
    even = 10_000 * code / (BYTES_FOR_TIME + code)
    own = option("own", 5_000 - even * (1 + step / 100))
    layers = [[option("shared", 5_000)], [option("shared", 5_000), own]]
    assert [o.kernel.name for o in select_smallest(layers)] == ["shared", "own" if step > 0 else "shared"]


class _Variant(Kernel):
    name = "s8_conv2d__c_priced"

    def __init__(self, cycles: float, memory: int):
        self._cycles, self._memory = cycles, memory

    def cost(self, layer: LayerContext) -> float:
        del layer
        return self._cycles

    def extra_memory(self, layer: LayerContext) -> int:
        del layer
        return self._memory


@pytest.mark.parametrize("level", variants.MEMORY_FOR_TIME)
@pytest.mark.parametrize("largest", [False, True])
def test_memory_is_worth_its_part_of_the_time(level: str, largest: bool) -> None:
    """As many bytes as input and output, far from the model's largest layer and in it."""
    graph = conv2d_graph(8, 8, 4, 4, padding=SAME)
    whole = graph if largest else merge([graph, conv2d_graph(16, 16, 8, 8, padding=SAME)])
    layer = layer_of(whole, "cortex-m55", graph.nodes[0])
    policy = Policy(level, Model(whole))

    def score(cycles: float, memory: int) -> float:
        return variants._score(Case(_Variant(cycles, memory), layer, policy))

    weight = variants.MEMORY_FOR_TIME[level] * (1 if largest else variants.FAR_FROM_LARGEST)
    nbytes = 2 * 8 * 8 * 4
    assert score(1000, nbytes) < score(1000 * (1 + weight) + 1, 0)
    assert score(1000, nbytes) > score(1000 * (1 + weight) - 1, 0)


@pytest.mark.parametrize(("filters", "refused"), [(2, True), (32, False)])
def test_long_code_for_a_window_needs_its_part_of_the_products(filters: int, refused: bool) -> None:
    image = conv2d_graph(16, 24, 16, filters, padding=SAME)
    graph = merge([image, conv2d_graph(16, 24, 96, 60, (1, 1))])
    share = image.nodes[0].macs() / Model(graph).products
    assert (share < worth.WINDOW_SHARE) == refused
    assert (_reason(graph, image.nodes[0], "s8_conv2d__dsp_fpu") is not None) == refused


@pytest.mark.parametrize(("shapes", "width", "refused"), [(4, 8, False), (5, 8, True), (5, 24, False)])
def test_code_for_an_image_needs_few_shapes_or_its_part(shapes: int, width: int, refused: bool) -> None:
    image = depthwise_conv2d_graph(10, width, 8, padding=SAME)
    others = [depthwise_conv2d_graph(10 + n, 8, 8, padding=SAME) for n in range(1, shapes)]
    graph = merge([image, *others])
    share = image.nodes[0].macs() / Model(graph).products
    assert (shapes > worth.FEW_SHAPES and share < worth.IMAGE_SHARE) == refused
    found: Any = _reason(graph, image.nodes[0], "s8_depthwise_conv2d__dsp_row")
    assert (found is not None and "one shape of image" in found) == refused
