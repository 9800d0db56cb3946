"""The whole way of a model, on one page: import, optimise, select kernels, plan; gives a `Program`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from microfold.analysis.pruning_proof import PruningProof
from microfold.analysis.ranges import analyze
from microfold.analysis.relaxation import Relaxation
from microfold.codegen.names import Namer, model_identifier
from microfold.errors import InputError, Problem, UnsupportedModelError
from microfold.external.kernel import ExternalKernel, external_kernel
from microfold.external.registry import resolve
from microfold.frontend import tflite
from microfold.frontend.labels import NO_LABELS, Labels, labels_of_model
from microfold.ir.domain import admit
from microfold.ir.graph import Graph
from microfold.ir.limits import MAX_BYTES
from microfold.ir.node import Node, Value
from microfold.ir.views import Views
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate, Ranking, candidates, why_none
from microfold.kernels.selection.decide import decide
from microfold.kernels.selection.model import Model
from microfold.kernels.selection.policy import Policy
from microfold.options import Options
from microfold.passes.context import Decision, PassContext
from microfold.pipeline import optimize
from microfold.placement import check_placement
from microfold.plan.check import check_plan
from microfold.plan.liveness import Storage, computing_nodes
from microfold.plan.memory import Memory, plan_memory
from microfold.plan.overlap import align
from microfold.program import Buffer, Layer, Origin, Program, StateSlot, origin_of
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
    path = Path(path)
    data = tflite.read_file(path)
    graph = tflite.import_model(data, path.stem, path.name)
    origin, labels = origin_of(path, data), labels_of_model(data)
    return compile_graph(graph, target, options, name=name, origin=origin, labels=labels)


def compile_graph(
    graph: Graph,
    target: Target,
    options: Options | None = None,
    *,
    name: str = "",
    context: PassContext | None = None,
    origin: Origin | None = None,
    labels: Labels = NO_LABELS,
) -> Program:
    """Compile an imported graph; see `compile_file`.

    Args:
        context: which passes run, and what watches them. What the target and the options say of numerics and
            external code is taken from them.
        origin: the file of the graph.
        labels: what the classes of outputs may be called.

    Raises:
        InputError: options and context ask for different numerics, or the labels are required and do not fit.
    """
    options = options or Options()
    way = _Way(graph, target, options, context)
    program = _plan(way, model_identifier(name or graph.name))
    evidence = [decision.evidence for decision in way.decisions]
    return replace(
        program,
        context=way.context,
        ranges=way.ranges,
        pruned=tuple(item for item in evidence if isinstance(item, PruningProof)),
        relaxations=tuple(item for item in evidence if isinstance(item, Relaxation)),
        origin=origin,
        labels=labels.of_outputs([buffer.type for buffer in program.outputs]),
        labels_ignored=labels.ignored,
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
    layers = [(ranking.layer, [*ranking.candidates]) for ranking in way.rankings]
    if all(found and found[0].cost is not None for _, found in layers):
        for (_, found), chosen in zip(layers, way.chosen, strict=True):
            others = [c for c in found if c.kernel.name != chosen.kernel.name]
            found[:] = [chosen, *others]
    return layers


def layer_names(layers: Iterable[tuple[LayerContext, Sequence[Candidate]]]) -> list[str]:
    """What `compile_graph` calls the layers: `Layer.name`."""
    namer = Namer()
    return [_claim_name(namer, layer, found[0].kernel if found else None) for layer, found in layers]


def _claim_name(namer: Namer, layer: LayerContext, kernel: Kernel | None) -> str:
    work = kernel.work(layer) if kernel is not None else (layer.node,)
    return namer.unique(layer.node.outputs[0].name, work[-1].op.name)


class _Way:
    """The way of a model to the kernels that compute it.

    Attributes:
        source: the model as the caller sees it: the reference.
        graph: the optimised one.
        context: what the passes were told.
        decisions: what they decided.
        ranges: what is proved about the integers of `graph`.
        model: what selection knows about `graph`.
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
        self.model = Model(self.graph)

    @cached_property
    def rankings(self) -> list[Ranking]:
        """The layers, in order, each with the kernels considered for it."""
        return [self._rank(node) for node in computing_nodes(self.graph)]

    def _rank(self, node: Node) -> Ranking:
        small = self.options.optimize == "size"
        layer = LayerContext(node, self.graph.constants, self.target, self.ranges, compiled_for_size=small)
        outside = external_kernel(node, self.graph, self.target, self.options)
        if outside is not None:
            return Ranking(layer, [Candidate(outside, outside.cost(layer), None)], fixed=True)
        return Ranking(layer, candidates(layer, Policy(self.options.optimize, self.model)))

    @cached_property
    def chosen(self) -> list[Candidate]:
        """The kernel of each layer.

        Raises:
            UnsupportedModelError: some layers have none.
            InputError: none of them fit the flash that the options allow.
        """
        problems = [
            Problem(
                f"layer {index} ({layer.node.op.name}) {layer.node.outputs[0].name!r}",
                f"no kernel for {self.target.name} computes it: {why_none(layer, found)}",
                "choose another target or other types; `microfold kernels` has the reasons of all kernels",
            )
            for index, (layer, found) in enumerate((r.layer, r.candidates) for r in self.rankings)
            if not found or found[0].cost is None
        ]
        if problems:
            raise UnsupportedModelError(self.graph.name, problems)
        return decide(self.rankings, self.model, self.options, self.memory)

    def memory(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> Memory:
        """Where the tensors and the scratch of calls lie."""
        layers = [ranking.layer for ranking in self.rankings]
        return plan_memory(
            self.graph,
            [*zip(layers, kernels, strict=True)],
            calls,
            include_io=self.options.io == "arena",
        )


def _plan(way: _Way, name: str) -> Program:
    graph, options = way.graph, way.options
    calls = [c.kernel.lower(r.layer) for r, c in zip(way.rankings, way.chosen, strict=True)]
    if options.functions_of_their_own:
        calls = _with_own_functions(calls)
    memory = way.memory([candidate.kernel for candidate in way.chosen], calls)
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
    for index, (ranking, chosen, call) in enumerate(zip(way.rankings, way.chosen, calls, strict=True)):
        block = memory.scratch.get(index)
        scratch = arena.offsets[block] if block else None
        layers.append(_layer(index, namer, ranking, chosen, call, locate, scratch))
    check_placement(layers, options)
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


def _with_own_functions(calls: Sequence[KernelCall]) -> list[KernelCall]:
    """A function for each layer: compilers put its numbers into the code of what nothing else calls."""
    uses = Counter(call.function for call in calls)
    return [
        call
        if call.function.library is not None or uses[call.function] == 1
        else replace(call, function=replace(call.function, only_layer=index))
        for index, call in enumerate(calls)
    ]


def _layer(
    index: int,
    namer: Namer,
    ranking: Ranking,
    chosen: Candidate,
    call: KernelCall,
    locate: _Locator,
    scratch: int | None,
) -> Layer:
    layer, kernel = ranking.layer, chosen.kernel
    node = layer.node
    work = kernel.work(layer)
    inputs = [node.inputs[i] for i in kernel.data_inputs(layer)]
    return Layer(
        index=index,
        name=_claim_name(namer, layer, kernel),
        node=node,
        kernel=kernel,
        call=call,
        work=work,
        macs=sum(each.macs() for each in work),
        estimated_instructions=None
        if chosen.cost is None or isinstance(kernel, ExternalKernel)
        else round(chosen.cost),
        inputs=tuple(locate(value) for value in inputs if value is not None),
        outputs=tuple(locate(value) for value in node.outputs),
        scratch=scratch,
        candidates=tuple(ranking.candidates),
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
