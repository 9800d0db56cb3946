"""Scopes: a graph during kernel selection, and the graphs that its loops and conditions run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from microfold.analysis.ranges import analyze
from microfold.external.kernel import external_kernel
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.kernels.call import KernelCall
from microfold.kernels.control import BranchKernel, LoopKernel
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import (
    NO_GUIDANCE,
    Candidate,
    Guidance,
    LayerCandidates,
    candidates,
)
from microfold.ops.control.control_flow import If
from microfold.ops.control.loop import Loop
from microfold.options import Options
from microfold.plan.liveness import computing_nodes
from microfold.plan.loop_carried_in_place import updated_in_place, whole_outputs
from microfold.plan.memory import MemoryPlan, plan_memory
from microfold.plan.overlap import align
from microfold.target import Target


class ScopeMemory(Struct, frozen=True):
    """Addresses of the tensors and the scratch of a scope.

    Attributes:
        own: memory of its graph; the scratch of a call that runs other layers is the arena of these layers.
        direct: outputs of the graph, by index, that are directly in the buffers of the node that runs it,
            each with the value that owns the storage.
        inner: memory of the scopes that calls run, by the calls' indices in this scope.
    """

    own: MemoryPlan
    direct: Mapping[int, Value]
    inner: Mapping[int, tuple[ScopeMemory, ...]]

    @property
    def size(self) -> int:
        """Size of the arena, in bytes."""
        return self.own.size

    @property
    def needs(self) -> list[int]:
        """Bytes of arena for the live tensors of each call, in the order of `LoweringScope.everything`."""
        found: list[int] = []
        for call, need in enumerate(self.own.needs):
            found.append(need)
            for scope in self.inner.get(call, ()):
                found += scope.needs
        return found


class LoweringScope:
    """A graph with its ranked kernels, and the scopes of the graphs that it runs.

    Attributes:
        guidance: measurements and pins of kernels.
        ranges: proved ranges of its integers.
        runs: maximum number of times that a run of the model computes it.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        options: Options,
        guidance: Guidance = NO_GUIDANCE,
        runs: int = 1,
    ):
        self.graph = graph
        self.target = target
        self.options = options
        self.runs = runs
        self.ranges = analyze(graph)
        self.guidance = guidance
        self.nodes = computing_nodes(graph)

    @property
    def state_size(self) -> int:
        """Bytes of state that is kept between runs."""
        return sum(align(state.value.type.nbytes) for state in self.graph.state)

    def ram_besides_arena(self, *, io_in_arena: bool) -> int:
        """Return the bytes of RAM outside of the arena that a run needs: state, and the caller's buffers."""
        held = () if io_in_arena else dict.fromkeys((*self.graph.inputs, *self.graph.outputs))
        return self.state_size + sum(align(value.type.nbytes) for value in held)

    @cached_property
    def inner(self) -> Mapping[int, tuple[LoweringScope, ...]]:
        """Scopes that calls run, by the calls' indices: a loop's condition, if it has one, and its body."""
        found: dict[int, tuple[LoweringScope, ...]] = {}
        for index, node in enumerate(self.nodes):
            if isinstance(node.op, Loop | If):
                counts = (1, 1)
                if isinstance(node.op, Loop):
                    counts = (node.op.runs + 1, node.op.runs) if node.op.condition else (node.op.runs,)
                bodies = [self.graph.subgraphs[name] for name in node.op.bodies]
                found[index] = tuple(
                    LoweringScope(body, self.target, self.options, self.guidance, self.runs * count)
                    for body, count in zip(bodies, counts, strict=True)
                )
        return found

    @cached_property
    def rankings(self) -> list[LayerCandidates]:
        """Layers of this graph, in order, each with the kernels considered for it."""
        return [self._rank(index, node) for index, node in enumerate(self.nodes)]

    def in_order(self, graph: Graph, order: Sequence[int]) -> LoweringScope:
        """Return the scope with its calls in another order.

        Args:
            graph: the graph with its nodes in this order.
            order: the calls, as indices into the calls of this scope; none of them runs others.
        """
        other = copy(self)
        other.graph, other.nodes = graph, [self.nodes[index] for index in order]
        other.rankings = [self.rankings[index] for index in order]
        return other

    @property
    def everything(self) -> Iterator[LayerCandidates]:
        """All layers, each followed by the layers that it runs."""
        for index, ranking in enumerate(self.rankings):
            yield ranking
            for scope in self.inner.get(index, ()):
                yield from scope.everything

    def _rank(self, index: int, node: Node) -> LayerCandidates:
        small = self.options.optimize == "size"
        layer = LayerContext(node, self.graph.constants, self.target, self.ranges, compiled_for_size=small)
        if index in self.inner:
            return LayerCandidates(layer, [self._control(index, layer)], fixed=True, runs=self.runs)
        outside = external_kernel(node, self.graph, self.target, self.options)
        if outside is not None:
            return LayerCandidates(
                layer, [Candidate(outside, outside.cost(layer), None)], fixed=True, runs=self.runs
            )
        return LayerCandidates(layer, candidates(layer, self.guidance), runs=self.runs)

    def _control(self, index: int, layer: LayerContext) -> Candidate:
        """Return the only kernel of a loop or condition; its cost is that of its layers' fastest kernels."""
        costs = [
            sum((r.candidates[0].cost or 0.0) * r.runs / self.runs for r in scope.rankings if r.candidates)
            for scope in self.inner[index]
        ]
        is_loop = isinstance(layer.node.op, Loop)
        kernel = LoopKernel(sum(costs)) if is_loop else BranchKernel(max(costs))
        return Candidate(kernel, kernel.instructions, None)

    def memory(
        self, kernels: Iterator[Kernel], calls: Iterator[KernelCall], *, include_io: bool
    ) -> ScopeMemory:
        """Return the addresses of all tensors.

        Args:
            kernels, calls: kernels and calls of all layers, in the order of `everything`.
            include_io: whether the graph's inputs and outputs are in the arena.
        """
        return self._memory(kernels, calls, include_io=include_io, part=None)

    def _memory(
        self,
        kernels: Iterator[Kernel],
        calls: Iterator[KernelCall],
        *,
        include_io: bool,
        part: str | None,
    ) -> ScopeMemory:
        """Return `memory` of a loop's ``condition`` or ``body``, of a ``branch``, or of the model (None)."""
        own_kernels: list[tuple[LayerContext, Kernel]] = []
        own_calls: list[KernelCall] = []
        inner: dict[int, tuple[ScopeMemory, ...]] = {}
        for index, ranking in enumerate(self.rankings):
            kernel, call = next(kernels), next(calls)
            if index in self.inner:
                scopes = self.inner[index]
                inner[index] = tuple(
                    scope._memory(kernels, calls, include_io=True, part=kind)
                    for scope, kind in zip(scopes, _parts(ranking.layer.node, len(scopes)), strict=True)
                )
                call = replace(call, scratch=max(memory.size for memory in inner[index]))
            own_kernels.append((ranking.layer, kernel))
            own_calls.append(call)
        direct: Mapping[int, Value] = {}
        if part == "body":
            direct = updated_in_place(self.graph, own_kernels)
        elif part == "branch":
            direct = whole_outputs(self.graph)
        elsewhere = [*self.graph.inputs, *direct.values()] if part is not None else []
        own = plan_memory(
            self.graph,
            own_kernels,
            own_calls,
            include_io=include_io,
            elsewhere=elsewhere,
            alignment=self.options.align,
        )
        return ScopeMemory(own, direct, inner)


def _parts(node: Node, count: int) -> tuple[str, ...]:
    """Return the roles of a node's bodies."""
    if isinstance(node.op, If):
        return ("branch", "branch")
    return ("condition", "body")[2 - count :]
