"""The whole way of a model, on one page: import, optimise, select kernels, plan; gives a `Program`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from microfold.analysis.certificate import Certificate
from microfold.codegen.names import Namer, model_identifier
from microfold.errors import Problem, UnsupportedModelError
from microfold.frontend import tflite
from microfold.ir.graph import Graph, Node, Value
from microfold.kernels.kernel import Call, Kernel, Site
from microfold.kernels.select import Candidate, candidates, select
from microfold.options import Options
from microfold.passes import Decision, PassContext
from microfold.pipeline import optimize
from microfold.plan.arena import Overlap, align, plan_arena
from microfold.plan.check import check_plan
from microfold.plan.liveness import Storage, computing_nodes, storages, view_roots
from microfold.program import Buffer, Layer, Program, StateSlot
from microfold.target import Target


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
    """Compile an imported graph; see `compile_file`."""
    options = options or Options()
    context = replace(context or PassContext(), channel_block=target.channel_block)
    decisions: list[Decision] = []
    optimized = optimize(graph, context.reporting_to(decisions.append))
    kernels = _select_kernels(optimized, target, options)
    program = _plan(graph, optimized, kernels, target, options, model_identifier(name or graph.name))
    proofs = (decision.evidence for decision in decisions)
    return replace(program, pruned=tuple(proof for proof in proofs if isinstance(proof, Certificate)))


def explain_kernels(graph: Graph, target: Target, options: Options) -> list[tuple[Site, list[Candidate]]]:
    """Every layer with every kernel considered for it, the chosen one first."""
    optimized = optimize(graph, PassContext(channel_block=target.channel_block))
    sites = [Site(node, optimized, target, options) for node in computing_nodes(optimized)]
    return [(site, candidates(site)) for site in sites]


def _select_kernels(graph: Graph, target: Target, options: Options) -> list[tuple[Site, Kernel]]:
    problems: list[Problem] = []
    chosen: list[tuple[Site, Kernel]] = []
    for index, node in enumerate(computing_nodes(graph)):
        site = Site(node, graph, target, options)
        kernel = select(site)
        if isinstance(kernel, str):
            where = f"layer {index} ({node.op.name}) {node.outputs[0].name!r}"
            problems.append(Problem(where, f"no kernel for {target.name} computes it: {kernel}"))
        else:
            chosen.append((site, kernel))
    if problems:
        raise UnsupportedModelError(graph.name, problems)
    return chosen


def _plan(
    source: Graph,
    graph: Graph,
    kernels: list[tuple[Site, Kernel]],
    target: Target,
    options: Options,
    name: str,
) -> Program:
    calls = [site.node for site, _ in kernels]
    lowered = [kernel.lower(site) for site, kernel in kernels]
    owners = storages(graph, calls, include_io=options.io == "arena")
    scratch = {
        index: Storage(f"scratch of call {index}", call.scratch, index, index)
        for index, call in enumerate(lowered)
        if call.scratch
    }
    blocks = [*dict.fromkeys(owners.values()), *scratch.values()]
    arena = plan_arena(blocks, _overlaps(kernels, owners))
    check_plan(blocks, arena)

    locate = _Locator(graph, owners, arena.offsets, options)
    namer = Namer()
    layers: list[Layer] = []
    for index, ((site, kernel), call) in enumerate(zip(kernels, lowered, strict=True)):
        block = scratch.get(index)
        layers.append(
            _layer(index, namer, site, kernel, call, locate, arena.offsets[block] if block else None)
        )
    return Program(
        name=name,
        source=source,
        graph=graph,
        target=target,
        options=options,
        inputs=tuple(locate(value) for value in graph.inputs),
        outputs=tuple(locate(value) for value in graph.outputs),
        layers=tuple(layers),
        state=tuple(
            StateSlot(locate(s.value), locate(s.next) if s.next is not s.value else None) for s in graph.state
        ),
        arena=arena,
    )


def _overlaps(kernels: list[tuple[Site, Kernel]], owners: dict[Value, Storage]) -> list[Overlap]:
    """Inputs that die in a call, and that its kernel lets the output lie over."""
    found: list[Overlap] = []
    for index, (site, kernel) in enumerate(kernels):
        target = owners.get(site.node.outputs[0])
        if target is None:
            continue
        data = kernel.data_inputs(site)
        sources = [owners.get(site.node.inputs[i]) for i in data]  # type: ignore[arg-type]
        for position, source in zip(data, sources, strict=True):
            # Storage that is read twice would have to satisfy both reads.
            if source is None or source.last != index or sources.count(source) > 1:
                continue
            distance = kernel.overlap(site, position)
            if distance is not None:
                found.append(Overlap(source, target, distance))
            elif kernel.in_place(site, position):
                found.append(Overlap(source, target, 0, exact=True))
    return found


def _layer(
    index: int, namer: Namer, site: Site, kernel: Kernel, call: Call, locate: _Locator, scratch: int | None
) -> Layer:
    node: Node = site.node
    inputs = [node.inputs[i] for i in kernel.data_inputs(site)]
    return Layer(
        index=index,
        name=namer.unique(node.outputs[0].name, node.op.name),
        node=node,
        kernel=kernel,
        call=call,
        macs=node.macs(),
        inputs=tuple(locate(value) for value in inputs if value is not None),
        outputs=tuple(locate(value) for value in node.outputs),
        scratch=scratch,
    )


class _Locator:
    """Finds the buffer of every value."""

    def __init__(
        self, graph: Graph, owners: Mapping[Value, Storage], offsets: Mapping[Storage, int], options: Options
    ):
        self.roots = view_roots(graph)
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
                    self.special[self.roots.get(value, value)] = (region, index)

    def __call__(self, value: Value) -> Buffer:
        root = self.roots.get(value, value)
        if root in self.special:
            region, offset = self.special[root]
            return Buffer(value, region, offset)
        return Buffer(value, "arena", self.offsets[self.owners[root]])
