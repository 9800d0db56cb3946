"""What simulated cores count for layers, each by every variant of every kernel that can compute it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import pytest
from msgspec import Struct
from msgspec.structs import replace

from microfold.analysis.ranges import analyze
from microfold.compiler import compile_graph
from microfold.errors import ToolError
from microfold.ir.graph import Graph
from microfold.ir.node import make_node
from microfold.kernels.conv2d.shared_conv_kernel import ByConvolution
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection import candidates
from microfold.kernels.selection.candidates import NO_GUIDANCE, Candidate, Guidance, Implementation
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.plan import memory
from microfold.simulate.program import simulator
from microfold.target import Target
from microfold.target.pipeline import Pipeline
from microfold.target.timing import CoreTiming
from microfold.verification import verify
from tests.kernels.cores import plan_each
from tests.kernels.random_networks import merge

# Layers of one image: compilers and simulators take as long to start as for many of them.
TOGETHER = 150
# The same where each has a function of its own, which compilers make a part of callers that have few.
TOGETHER_ALONE = 20
# Cases of a kernel, at most: variants multiply them.
MOST_CASES = 60
GOLDEN_RATIO = (5**0.5 - 1) / 2


class Sample(Struct, frozen=True):
    """One layer, computed by one variant of a kernel.

    Attributes:
        layer: which of the layers.
        variant: which of the kernel's variants.
        terms: of the variant.
        instructions: executed.
        cycles: by the core's timing table, or the model of its pipeline.
        callers: layers of the image that call its function: compilers make that of a single one for it.
        others: instructions and cycles of these that are not its terms': kernels' to which it hands parts.
    """

    kernel: str
    layer: int
    variant: int
    terms: Mapping[str, float]
    instructions: int
    cycles: int
    callers: int
    others: tuple[float, float] = (0.0, 0.0)


class _Case(Struct, frozen=True):
    """A graph of one node, and which variant of which kernel is to compute it."""

    index: int
    graph: Graph
    kernel: Kernel
    variant: int
    terms: Mapping[str, float]


def measure(
    graphs: Sequence[Graph], target: Target, *, alone: bool = False, wanted: str = ""
) -> list[Sample]:
    """All layers by all variants; equal layers give equal samples.

    Args:
        alone: each layer has a function of its own.
        wanted: names of kernels begin so, or it is their family, as "elementwise".
    """
    cases = find_cases(graphs, target, wanted)
    together = TOGETHER_ALONE if alone else TOGETHER
    batches = [cases[i : i + together] for i in range(0, len(cases), together)]
    return [
        sample
        for batch in batches
        for sample in with_others(batch, measure_batch(batch, target, alone), target, alone)
    ]


def with_others(
    cases: Sequence[_Case], samples: Sequence[Sample], target: Target, alone: bool
) -> list[Sample]:
    """Samples of kernels that hand on layers to convolution kernels, with what these take.

    That is measured, too: estimates of it are off by more than all that is their own.
    """
    handed = {
        (c.kernel.name, c.index, c.variant): _handed_on(c, target) for c in cases if _hands_on(c.kernel)
    }
    measured = _measure_handed([own for own, _ in handed.values()], target, alone) if handed else {}
    found: list[Sample] = []
    for sample in samples:
        key = sample.kernel, sample.layer, sample.variant
        if key in handed:
            own, (instructions, cycles) = handed[key]
            other = measured[own.kernel.name, own.index, own.variant]
            sample = replace(sample, others=(other.instructions + instructions, other.cycles + cycles))
        found.append(sample)
    return found


def _measure_handed(
    cases: Sequence[_Case], target: Target, alone: bool
) -> dict[tuple[str, int, int], Sample]:
    """What convolutions take, as estimates say it: of functions for one layer where these have their own."""
    single: list[_Case] = []
    several: list[_Case] = []
    for case in cases:
        row = case.kernel.row(target.features)
        if alone and row is not None and row.alone:
            single.append(case)
        else:
            # Each twice, so that no function is for one layer.
            several += [case, case]
    samples = measure_batch(single, target, True) if single else []
    samples += measure_batch(several, target, False) if several else []
    return {(sample.kernel, sample.layer, sample.variant): sample for sample in samples}


def _handed_on(case: _Case, target: Target) -> tuple[_Case, tuple[float, float]]:
    """The convolution that a kernel hands on, by the same variant; estimates of what it computes besides."""
    (node,) = case.graph.nodes
    layer = LayerContext(node, case.graph.constants, target, analyze(case.graph))
    variant = case.kernel.variants(layer)[case.variant]
    assert isinstance(variant, ByConvolution)
    (own,) = (each for each in KERNELS if each.name == variant.convolution.name)
    inner = variant.convolved(layer)
    inputs = tuple(value for value in inner.node.operands if value not in inner.constants)
    graph = Graph("net", inputs, inner.node.outputs, (inner.node,), inner.constants)
    beside = variant.beside(layer)
    instructions = sum(kernel.cost(part) for kernel, part in beside)
    cycles = sum(kernel.cycles(part) for kernel, part in beside)
    return _Case(case.index, graph, own, case.variant, {}), (instructions, cycles)


def measure_batch(cases: Sequence[_Case], target: Target, alone: bool) -> list[Sample]:
    """The layers in one image, or in several if they do not fit the core's memory."""
    try:
        return _measure_together(cases, target, alone)
    except ToolError:
        if len(cases) == 1:
            raise
    half = len(cases) // 2
    return [*measure_batch(cases[:half], target, alone), *measure_batch(cases[half:], target, alone)]


def find_cases(graphs: Sequence[Graph], target: Target, wanted: str = "") -> list[_Case]:
    """Those of one kernel side by side, so that layers share its functions.

    Kernels that compute the same layers are measured on the same ones, as far as they are not too many: the
    order of layers is one for all, and spreads any number of the first over all of them.
    """
    found = [case for i, graph in enumerate(graphs) for case in _variants(i, graph, target, wanted)]
    kept: list[_Case] = []
    for _, group in groupby(sorted(found, key=_order), key=_name):
        kept += _rounds(list(group))[:MOST_CASES]
    return kept


def _name(case: _Case) -> str:
    return case.kernel.name


def _order(case: _Case) -> tuple[str, float]:
    return case.kernel.name, spread(case.index)


def spread(layer: int) -> float:
    """A place for a layer between 0 and 1: any of them in the order of places are spread over all kinds.

    Multiples of the golden ratio modulo 1 are spread evenly at any length.
    """
    return layer * GOLDEN_RATIO % 1


def _rounds(cases: Sequence[_Case]) -> list[_Case]:
    """One variant of each layer, and another one for the next layer, before further ones of the first."""
    layers = [list(group) for _, group in groupby(cases, key=lambda case: case.index)]
    most = max(map(len, layers))
    return [
        own[(place + turn) % len(own)]
        for turn in range(most)
        for place, own in enumerate(layers)
        if turn < len(own)
    ]


def _variants(index: int, graph: Graph, target: Target, wanted: str) -> Iterator[_Case]:
    (node,) = graph.nodes
    layer = LayerContext(node, graph.constants, target, analyze(graph))
    for kernel in candidates.kernels_for(node):
        suits = selectable(kernel, target) and _is_wanted(kernel, wanted)
        if suits and kernel.supports(layer) is None:
            for number, variant in enumerate(kernel.variants(layer)):
                yield _Case(index, graph, kernel, number, variant.terms(layer))


def _is_wanted(kernel: Kernel, wanted: str) -> bool:
    family = type(kernel).__module__.removeprefix("microfold.kernels.").partition(".")[0]
    return without_halves(kernel.name).startswith(without_halves(wanted)) or family == wanted


def without_halves(name: str) -> str:
    """The kernel that one with weights of float16 is like, but for these; of others, the same name."""
    return name.replace("_f16w_", "_")


def selectable(kernel: Kernel, target: Target) -> bool:
    """Whether it may be chosen for some layers, and some of its cost is its own."""
    suits = kernel.features <= target.features and not kernel.superseded_by & target.features
    return suits and (not isinstance(kernel, ByConvolution) or _hands_on(kernel))


def _hands_on(kernel: Kernel) -> bool:
    """Whether it has terms besides what it hands on to a convolution kernel."""
    return isinstance(kernel, ByConvolution) and type(kernel).terms is not ByConvolution.terms


def _measure_together(cases: Sequence[_Case], target: Target, alone: bool) -> list[Sample]:
    """The layers in one image."""

    def consider(kernel: Kernel, layer: LayerContext, guidance: Guidance = NO_GUIDANCE) -> Candidate:
        del guidance
        case = cases[_number(layer.node.outputs[0].name)]
        if kernel is not case.kernel:
            return Candidate(kernel, None, "another kernel is measured")
        variant = kernel.variants(layer)[case.variant]
        return Candidate(variant, 1.0, None, [Implementation(variant, layer, 1.0, 0.5 if alone else 2.0)])

    named = [_named(case.graph, f"case{i}") for i, case in enumerate(cases)]
    merged, state = merge(named), tuple(each for graph in named for each in graph.state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "evaluate_candidate", consider)
        patch.setattr(memory, "plan_arena", plan_each)
        program = compile_graph(
            replace(merged, state=state), target, Options(), context=PassContext(opt_level=0)
        )
    # Floats about as large as activations are: functions of the C library take longer for large ones.
    calls = verify.input_sets([buffer.type for buffer in program.inputs], 5)[4:]
    with simulator(program) as machine:
        image = machine.firmware(hooked=True)
        (trace,) = image.trace(calls, cycle_model(target))
    callers = Counter(layer.call.function for layer in program.layers)
    found: list[Sample] = []
    for layer, instructions, cycles in zip(program.layers, trace.instructions, trace.cycles, strict=False):
        case = cases[_number(layer.label)]
        name, number = case.kernel.name, case.variant
        shared = callers[layer.call.function]
        found.append(Sample(name, case.index, number, case.terms, instructions, cycles, shared))
    return found


def cycle_model(target: Target) -> CoreTiming | Pipeline:
    """What cycles are counted by."""
    assert target.cycle_model is not None, "only cores whose cycles are known are calibrated"
    return target.cycle_model


def _number(name: str) -> int:
    """Of the case that a result belongs to."""
    return int(name.removeprefix("case").partition("_")[0])


def _named(graph: Graph, name: str) -> Graph:
    """The graph with other names of its results."""
    (node,) = graph.nodes
    names = [name, *(f"{name}_{i}" for i in range(1, len(node.outputs)))]
    new = make_node(node.op, node.inputs, names, node.epilogue)
    renamed = dict(zip(node.outputs, new.outputs, strict=True))
    state = tuple(replace(each, next=renamed.get(each.next, each.next)) for each in graph.state)
    outputs = tuple(renamed.get(value, value) for value in graph.outputs)
    return replace(graph, nodes=(new,), outputs=outputs, state=state)
