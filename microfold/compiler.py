"""The whole way of a model, on one page: import, optimise, select kernels, plan; gives a `Program`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from microfold.analysis.certificate import Certificate
from microfold.analysis.ranges import analyze
from microfold.analysis.relaxation import Relaxation
from microfold.codegen.names import Namer, model_identifier
from microfold.errors import InputError, Problem, UnsupportedModelError
from microfold.external.kernel import ExternalKernel, external_kernel
from microfold.external.registry import resolve
from microfold.frontend import tflite
from microfold.ir.domain import admit
from microfold.ir.graph import Graph
from microfold.ir.limits import MAX_BYTES
from microfold.ir.node import Node, Value
from microfold.ir.views import Views
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate, candidates, select
from microfold.kernels.selection.flash_budget import select_within
from microfold.options import Options
from microfold.passes.context import Decision, PassContext
from microfold.pipeline import optimize
from microfold.plan.check import check_plan
from microfold.plan.liveness import Storage, computing_nodes
from microfold.plan.memory import plan_memory
from microfold.plan.overlap import align
from microfold.plan.smallest import smallest_kernels
from microfold.program import Buffer, Layer, Program, StateSlot
from microfold.target import Target
from microfold.transform.layout.io_layout import with_io_layout


def compile_file(
    path: str | Path, target: Target, options: Options | None = None, *, name: str = ""
) -> Program:
    """Compile a `.tflite` file.

    Args:
        name: prefix of all C names; default: the file's name.

    Raises:
        MicrofoldError: the file is malformed or has parts that cannot be compiled (all are listed).
    """
    return compile_graph(tflite.load(path), target, options, name=name)


def compile_graph(
    graph: Graph,
    target: Target,
    options: Options | None = None,
    *,
    name: str = "",
    context: PassContext | None = None,
) -> Program:
    """Compile an imported graph; see `compile_file`.

    Args:
        context: which passes run, and what watches them. What the target and the options say of numerics and
            external code is taken from them.

    Raises:
        InputError: options and context ask for different numerics.
    """
    options = options or Options()
    way = _Way(graph, target, options, context)
    program = _plan(way, model_identifier(name or graph.name))
    evidence = [decision.evidence for decision in way.decisions]
    return replace(
        program,
        context=way.context,
        ranges=way.ranges,
        pruned=tuple(item for item in evidence if isinstance(item, Certificate)),
        relaxations=tuple(item for item in evidence if isinstance(item, Relaxation)),
    )


def explain_kernels(
    graph: Graph, target: Target, options: Options, *, context: PassContext | None = None
) -> list[tuple[LayerContext, list[Candidate]]]:
    """Every layer with every kernel considered for it, the one that `compile_graph` chooses first.

    Where a layer has none, the reasons of all kernels are listed.

    Raises:
        InputError: as `compile_graph`.
    """
    way = _Way(graph, target, options, context)
    outside = [external_kernel(layer) for layer in way.layers]
    layers = [
        (layer, candidates(layer) if kernel is None else [Candidate(kernel, kernel.cost(layer), None)])
        for layer, kernel in zip(way.layers, outside, strict=True)
    ]
    if all(found and found[0].cost is not None for _, found in layers):
        for (_, found), (_, kernel) in zip(layers, way.kernels, strict=True):
            found.sort(key=lambda candidate: candidate.kernel is not kernel)
    return layers


class _Way:
    """The way of a model to the kernels that compute it.

    Attributes:
        source: the model as the caller sees it: the reference.
        graph: the optimised one.
        context: what the passes were told.
        decisions: what they decided.
        ranges: what is proved about the integers of `graph`.
        layers: the nodes that are computed, in order.
    """

    def __init__(self, graph: Graph, target: Target, options: Options, context: PassContext | None):
        if context is None:
            context = PassContext(numerics="relaxed" if options.numerics == "relaxed" else "exact")
        if context.numerics != options.numerics:
            raise InputError(
                "options and context must ask for the same numerics; "
                f"they ask for {options.numerics} and {context.numerics}"
            )
        admit(graph)
        self.target = target
        self.options = options
        self.context = replace(
            context,
            channel_block=target.channel_block,
            half_precision=target.half_precision,
            externals=resolve(options.external),
        )
        self.decisions: list[Decision] = []
        self.source = with_io_layout(graph, options.io_layout, self.context)
        self.graph = optimize(self.source, self.context.reporting_to(self.decisions.append))
        self.ranges = analyze(self.graph)
        nodes = computing_nodes(self.graph)
        self.layers = [LayerContext(node, self.graph, target, options, self.ranges) for node in nodes]

    @cached_property
    def kernels(self) -> list[tuple[LayerContext, Kernel]]:
        """The kernel of each layer.

        Raises:
            UnsupportedModelError: some layers have none.
            InputError: none of them fit the flash that the options allow.
        """
        return _select_kernels(self.graph, self.layers, self.options)


def _select_kernels(
    graph: Graph, layers: Sequence[LayerContext], options: Options
) -> list[tuple[LayerContext, Kernel]]:
    problems: list[Problem] = []
    chosen: list[tuple[LayerContext, Kernel]] = []
    for index, layer in enumerate(layers):
        kernel = external_kernel(layer) or select(layer)
        if isinstance(kernel, str):
            where = f"layer {index} ({layer.node.op.name}) {layer.node.outputs[0].name!r}"
            problems.append(Problem(where, f"no kernel for {layer.target.name} computes it: {kernel}"))
        else:
            chosen.append((layer, kernel))
    if problems:
        raise UnsupportedModelError(graph.name, problems)
    if options.flash is not None:
        return _within(options.flash, chosen)
    return _smallest(graph, chosen, options) if options.optimize == "size" else chosen


def _smallest(
    graph: Graph, chosen: list[tuple[LayerContext, Kernel]], options: Options
) -> list[tuple[LayerContext, Kernel]]:
    """Kernels that share code; external code generators keep their regions."""
    free = [external_kernel(layer) is None for layer, _ in chosen]
    return smallest_kernels(graph, chosen, free, include_io=options.io == "arena")


def _within(flash: int, chosen: list[tuple[LayerContext, Kernel]]) -> list[tuple[LayerContext, Kernel]]:
    """The fastest kernels whose constants fit; external code generators keep their regions."""
    free = [index for index, (layer, _) in enumerate(chosen) if external_kernel(layer) is None]
    choices = select_within(flash, [chosen[index][0] for index in free])
    if isinstance(choices, str):
        raise InputError(f"constants must fit {flash} bytes of flash; {choices}")
    replaced = dict(zip(free, ((choice.layer, choice.kernel) for choice in choices), strict=True))
    return [replaced.get(index, pair) for index, pair in enumerate(chosen)]


def _plan(way: _Way, name: str) -> Program:
    graph, kernels, options = way.graph, way.kernels, way.options
    calls = [kernel.lower(layer) for layer, kernel in kernels]
    memory = plan_memory(graph, kernels, calls, include_io=options.io == "arena")
    arena = memory.arena
    if arena.size > MAX_BYTES:
        where, reason = (
            f"graph {way.source.name!r}",
            f"an arena may have {MAX_BYTES} bytes; it has {arena.size}",
        )
        raise UnsupportedModelError(way.source.name, [Problem(where, reason, "make its tensors smaller")])
    check_plan(memory.blocks, arena)

    views = Views(graph)
    locate = _Locator(graph, views, memory.owners, arena.offsets, options)
    namer = Namer()
    layers: list[Layer] = []
    for index, ((layer, kernel), call) in enumerate(zip(kernels, calls, strict=True)):
        block = memory.scratch.get(index)
        layers.append(
            _layer(index, namer, layer, kernel, call, locate, arena.offsets[block] if block else None)
        )
    return Program(
        name=name,
        source=way.source,
        graph=graph,
        target=way.target,
        options=options,
        inputs=tuple(locate(value) for value in graph.inputs),
        outputs=tuple(locate(value) for value in graph.outputs),
        layers=tuple(layers),
        state=tuple(
            StateSlot(locate(s.value), locate(s.next) if s.next is not s.value else None) for s in graph.state
        ),
        arena=arena,
    )


def _layer(
    index: int,
    namer: Namer,
    layer: LayerContext,
    kernel: Kernel,
    call: KernelCall,
    locate: _Locator,
    scratch: int | None,
) -> Layer:
    node: Node = layer.node
    work = kernel.work(layer)
    inputs = [node.inputs[i] for i in kernel.data_inputs(layer)]
    return Layer(
        index=index,
        name=namer.unique(node.outputs[0].name, work[-1].op.name),
        node=node,
        kernel=kernel,
        call=call,
        work=work,
        macs=sum(each.macs() for each in work),
        estimated_instructions=None if isinstance(kernel, ExternalKernel) else round(kernel.cost(layer)),
        inputs=tuple(locate(value) for value in inputs if value is not None),
        outputs=tuple(locate(value) for value in node.outputs),
        scratch=scratch,
    )


class _Locator:
    """Finds the buffer of every value."""

    def __init__(
        self,
        graph: Graph,
        views: Views,
        owners: Mapping[Value, Storage],
        offsets: Mapping[Storage, int],
        options: Options,
    ):
        self.views = views
        self.owners = owners
        self.offsets = offsets
        self.special: dict[Value, tuple[str, int]] = dict.fromkeys(graph.constants, ("constant", 0))
        offset = 0
        for state in graph.state:
            self.special[state.value] = ("state", offset)
            offset += align(state.value.type.nbytes)
        if options.io == "caller":
            for region, values in (("input", graph.inputs), ("output", graph.outputs)):
                for index, value in enumerate(values):
                    self.special[self.views[value].root] = (region, index)

    def __call__(self, value: Value) -> Buffer:
        place = self.views[value]
        if place.root in self.special:
            region, offset = self.special[place.root]
            return Buffer(value, region, offset)
        return Buffer(value, "arena", self.offsets[self.owners[place.root]] + place.offset)
