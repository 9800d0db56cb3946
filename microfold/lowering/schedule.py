"""Layers of a program with their buffers, including the layers that loops and conditions run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from microfold.codegen.names import Namer
from microfold.external.kernel import ExternalKernel
from microfold.ir.graph import Graph
from microfold.ir.in_place import updated_states
from microfold.ir.node import Value
from microfold.ir.views import Views
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import Candidate, LayerCandidates
from microfold.lowering.callers import Callers
from microfold.lowering.scope import LoweringScope, ScopeMemory
from microfold.ops.control.loop import Loop
from microfold.options import Options
from microfold.plan.check import check_plan
from microfold.plan.liveness import Storage
from microfold.plan.overlap import align
from microfold.program import Block, BranchPlan, Buffer, Layer, LoopPlan, Move

Places = Mapping[Value, tuple[str, int]]


class KernelChoice(Struct, frozen=True):
    """Candidate and call that compute a layer."""

    candidate: Candidate
    call: KernelCall


def claim_name(namer: Namer, layer: LayerContext, kernel: Kernel | None) -> str:
    """Return the final, unique name of a layer."""
    work = kernel.work(layer) if kernel is not None else (layer.node,)
    return namer.unique(layer.node.outputs[0].name, work[-1].op.name)


def model_places(graph: Graph, options: Options) -> Places:
    """Return region and offset of values outside of the arena, by the values that own the storage."""
    views = Views(graph)
    places: dict[Value, tuple[str, int]] = {}
    offset = 0
    for state in graph.state:
        places[state.value] = ("state", offset)
        offset += align(state.value.type.nbytes)
    places |= {after: places[before] for after, before in updated_states(graph).items()}
    if options.io == "caller":
        for region, values in (("input", graph.inputs), ("output", graph.outputs)):
            for index, value in enumerate(values):
                places[views[value].root] = (region, index)
    return places


class Locator:
    """Locator of the buffer of every value of a graph.

    Args:
        places: values outside of the graph's arena, without constants.
        base: offset of the graph's arena in the model's arena.
    """

    def __init__(self, graph: Graph, memory: ScopeMemory, places: Places, base: int = 0):
        self.views = Views(graph)
        self.owners = memory.own.owners
        self.offsets: Mapping[Storage, int] = memory.own.arena.offsets
        self.base = base
        self.special = dict.fromkeys(graph.constants, ("constant", 0)) | dict(places)

    def __call__(self, value: Value) -> Buffer:
        place = self.views[value]
        if place.root in self.special:
            region, offset = self.special[place.root]
            return Buffer(value, region, offset + place.offset if region == "state" else offset)
        return Buffer(value, "arena", self.base + self.offsets[self.owners[place.root]] + place.offset)


class Scheduler:
    """Builder of layers.

    Args:
        choices: choices of all layers, in the order of `LoweringScope.everything`.
    """

    def __init__(self, choices: Sequence[KernelChoice]):
        self._choices = iter(choices)
        self._callers = Callers(choice.call for choice in choices)
        self._namer = Namer()

    def layers(self, scope: LoweringScope, memory: ScopeMemory, locate: Locator) -> tuple[Layer, ...]:
        """Return the layers of a scope, with the layers that they run."""
        check_plan(memory.own.blocks, memory.own.arena, scope.options.align)
        return tuple(
            self._layer(index, ranking, scope, memory, locate) for index, ranking in enumerate(scope.rankings)
        )

    def _layer(
        self, index: int, ranking: LayerCandidates, scope: LoweringScope, memory: ScopeMemory, locate: Locator
    ) -> Layer:
        choice = next(self._choices)
        layer, kernel, call = ranking.layer, choice.candidate.kernel, choice.call
        node, work = layer.node, kernel.work(layer)
        name = claim_name(self._namer, layer, kernel)
        block = memory.own.scratch.get(index)
        scratch = locate.base + memory.own.arena.offsets[block] if block else None
        buffer = memory.own.fetched.get(index)
        control = None
        instructions = cycles = None
        if not isinstance(kernel, ExternalKernel) and index not in scope.inner:
            instructions = round(self._callers.instructions(kernel, layer, call))
            timed = layer.target.cycle_model is not None
            cycles = round(self._callers.cycles(kernel, layer, call)) if timed else None
        macs = sum(each.macs() for each in work)
        if index in scope.inner:
            plan = self._loop if isinstance(node.op, Loop) else self._branches
            control = plan(index, ranking, scope, memory, locate, scratch or 0)
            call = KernelCall(call.function, scratch=block.size if block else 0)
            macs = control.most(lambda inner: inner.macs) or 0
            instructions = control.most(lambda inner: inner.estimated_instructions)
            cycles = control.most(lambda inner: inner.estimated_cycles)
        inputs = [node.arguments[i] for i in kernel.data_inputs(layer)]
        return Layer(
            index=index,
            name=name,
            node=node,
            kernel=kernel,
            call=call,
            work=work,
            macs=macs,
            estimated_instructions=instructions,
            estimated_cycles=cycles,
            inputs=tuple(locate(value) for value in inputs if value is not None),
            outputs=tuple(locate(value) for value in node.outputs),
            scratch=scratch,
            candidates=tuple(ranking.candidates),
            control=control,
            fetched=memory.own.arena.offsets[buffer] if buffer is not None else None,
            measured_cycles=choice.candidate.measured,
        )

    def _loop(
        self,
        index: int,
        ranking: LayerCandidates,
        scope: LoweringScope,
        memory: ScopeMemory,
        locate: Locator,
        base: int,
    ) -> LoopPlan:
        """Return a loop: carried values are in the buffers of its results, other values in its scratch."""
        node = ranking.layer.node
        op = node.op
        assert isinstance(op, Loop)
        homes = [locate(value) for value in node.outputs]
        operands = [locate(value) for value in node.operands]
        *conditions, body = zip(scope.inner[index], memory.inner[index], strict=True)
        begin = self._begin(ranking.layer, operands, homes, body[0].graph, bool(conditions))
        around = [*homes, *operands[len(homes) :]]
        condition, decision = None, None
        for inner, inner_memory in conditions:
            within = self._inside(inner, inner_memory, around, base, homes)
            condition = Block(inner.graph, self.layers(inner, inner_memory, within))
            decision = within(inner.graph.outputs[0])
        block = self._block(*body, around, homes, base)
        return LoopPlan(begin, op.runs, block, condition, decision, op.may_stop)

    def _branches(
        self,
        index: int,
        ranking: LayerCandidates,
        scope: LoweringScope,
        memory: ScopeMemory,
        locate: Locator,
        base: int,
    ) -> BranchPlan:
        """Return a condition: results of branches are in its result buffers, other values in its scratch."""
        node = ranking.layer.node
        homes = [locate(value) for value in node.outputs]
        decision, *operands = (locate(value) for value in node.operands)
        then, otherwise = (
            self._block(inner, inner_memory, operands, homes, base)
            for inner, inner_memory in zip(scope.inner[index], memory.inner[index], strict=True)
        )
        return BranchPlan(decision, then, otherwise)

    def _block(
        self,
        inner: LoweringScope,
        memory: ScopeMemory,
        around: Sequence[Buffer],
        homes: Sequence[Buffer],
        base: int,
    ) -> Block:
        """Return a body whose parameters are the buffers `around`, and whose results must be in `homes`."""
        within = self._inside(inner, memory, around, base, homes)
        layers = self.layers(inner, memory, within)
        results = [within(value) for value in inner.graph.outputs]
        moves = [Move(one, home) for one, home in zip(results, homes, strict=True) if _apart(one, home)]
        return Block(inner.graph, layers, tuple(moves))

    def _begin(
        self,
        layer: LayerContext,
        operands: Sequence[Buffer],
        homes: Sequence[Buffer],
        body: Graph,
        has_condition: bool,
    ) -> tuple[Move, ...]:
        """Return copies of carried values to their buffers, unless the first iteration does not read them."""
        op = layer.node.op
        assert isinstance(op, Loop)
        read = {value for node in body.nodes for value in node.operands} | set(body.outputs)
        needed = [has_condition or op.runs == 0 or value in read for value in body.inputs]
        arrays = [layer.array(i) for i in range(len(homes))]
        return tuple(
            Move(source, home, array is not None and not np.any(array))
            for source, home, array, wanted in zip(operands, homes, arrays, needed, strict=False)
            if wanted and _apart(source, home)
        )

    def _inside(
        self,
        inner: LoweringScope,
        memory: ScopeMemory,
        around: Sequence[Buffer],
        base: int,
        homes: Sequence[Buffer],
    ) -> Locator:
        """Return the locator of the buffers of a body."""
        places = {
            value: (buffer.region, buffer.offset)
            for value, buffer in zip(inner.graph.inputs, around, strict=True)
        }
        for index, root in memory.direct.items():
            places[root] = (homes[index].region, homes[index].offset)
        return Locator(inner.graph, memory, places, base)


def _apart(one: Buffer, other: Buffer) -> bool:
    return (one.region, one.offset) != (other.region, other.offset)
