"""Fuses residual additions into the convolutions before them if that makes the arena smaller.

    %c: int8[1,8,8,4] = conv2d(%x, %w, %b) {...}
    %y: int8[1,8,8,4] = add(%c, %r) {...} | clip() {minimum=0.0, maximum=6.0}
        ->
    %y: int8[1,8,8,4] = conv2d(%x, %w, %b) {...} | add(%r) {...} | clip() {minimum=0.0, maximum=6.0}

Without fusion, the result of the convolution is alive together with its input and the residual; the sum can
overlap the residual. Values must be int8 or float32. The intermediate value must have no other reader. int8
outputs go through a block buffer, which costs a little time; float32 sums become faster.

A separate function for these convolutions costs some flash. Therefore only sums are fused whose
convolutions determine the arena size, and only if the plan with the target's kernels becomes smaller
(`PassContext.arenas`). With a RAM limit, they are fused if the limit is met only then, or is met in less
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Node, Value
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ir.types import DType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.image import refuses_layout
from microfold.passes.context import ArenaEstimate, Arenas, PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.placement.fuse_ops import not_computed, with_step

# Maximum number of graphs to plan. Each plan costs as much as kernel selection for the whole model.
_PLANS = 12

# Fraction of the largest sum's tensors from which on other sums also may determine the arena size.
_LARGE = 3 / 4

# For the result of each sum, the indices of operands that convolutions compute.
_Sums = Mapping[Value, Sequence[int]]
# For the result of each fused sum, the index of the operand to fuse.
_Choice = Mapping[Value, int]


@function_pass(opt_level=2)
def fuse_residual(graph: Graph, context: PassContext) -> Graph:
    """Fuse sums into the convolutions before them if the arena becomes smaller."""
    sums = _sums(graph, context)
    if not sums:
        return graph
    producers = graph.producers()
    if context.arenas is None:
        for value in sums:
            context.declined(producers[value], "the size of the arena is unknown")
        return graph
    search = _Search(graph, sums, context.arenas)
    before = context.arenas(graph)
    limited = context.arenas.limited or before is None
    choice = search.fitting(before) if before is None or limited else search.smallest(before)
    choice = search.taken(choice, before, context)
    result, after = search.tried(choice)
    for value, operands in sums.items():
        fused = value in choice
        convolved = producers[value].inputs[choice[value] if fused else operands[0]]
        assert convolved is not None
        if fused and after is not None:
            context.fired(producers[value], f"into conv2d %{convolved.name}: {_gain(before, after, limited)}")
        else:
            small = f"%{convolved.name} does not determine the size of the arena"
            context.declined(producers[value], search.reasons.get(value, small))
    return result


def _gain(before: ArenaEstimate | None, after: ArenaEstimate, limited: bool) -> str:
    if before is None or before.streamed:
        return f"then the arena fits, with {after.arena} bytes"
    if limited:
        return f"about {after.cycles:.0f} cycles instead of {before.cycles:.0f}"
    return f"the arena has {after.arena} bytes instead of {before.arena}"


@dataclass(eq=False)
class _Search:
    """Search for the sums to fuse.

    Attributes:
        reasons: why sums are not fused, by their results.
    """

    graph: Graph
    sums: _Sums
    arenas: Arenas
    reasons: dict[Value, str] = field(default_factory=dict[Value, str])
    left: int = _PLANS

    def __post_init__(self) -> None:
        self._producers = self.graph.producers()
        self._tried: dict[tuple[tuple[Value, int], ...], tuple[Graph, ArenaEstimate | None]] = {}

    def tried(self, choice: _Choice) -> tuple[Graph, ArenaEstimate | None]:
        """Return the graph with these sums fused, and the estimate of its arena."""
        key = tuple(choice.items())
        if not key:
            return self.graph, None
        if key not in self._tried:
            self.left -= 1
            graph = _fused(self.graph, choice)
            self._tried[key] = graph, self.arenas(graph)
        return self._tried[key]

    def smallest(self, before: ArenaEstimate) -> _Choice:
        """Fuse the sums that are alive at the arena's peak, again and again while the arena shrinks."""
        choice: _Choice = {}
        now = before
        while True:
            there = {
                value: full
                for value, operands in self.sums.items()
                if value not in choice and (full := self._within(value, operands, now))
            }
            if not there or self.left < 2:
                return choice
            best: tuple[_Choice, ArenaEstimate] | None = None
            for trial in self._trials(choice, there):
                after = self.tried(trial)[1]
                reason = self.arenas.why_not(before, after) or self.arenas.why_not(now, after)
                if reason is not None:
                    self.reasons |= dict.fromkeys(there, reason)
                elif after is not None and (best is None or after[:2] < best[1][:2]):
                    best = trial, after
            if best is None:
                return choice
            choice, now = best

    def fitting(self, before: ArenaEstimate | None) -> _Choice:
        """Return the fewest sums with which whole tensors fit the RAM limit, or need less time, if any.

        Args:
            before: estimate of the unchanged graph, if it fits.
        """
        choice: _Choice = {}
        for trial in (*self._trials({}, self._large()), *self._trials({}, self.sums)):
            reason = self.arenas.why_not(before, self.tried(trial)[1])
            if reason is None:
                choice = trial
                break
            self.reasons |= dict.fromkeys(trial, reason)
        for value in [*choice]:
            fewer = {other: operand for other, operand in choice.items() if other is not value}
            if fewer and self.left > 0 and self._is_as_good(before, fewer, choice):
                choice = fewer
                self.reasons[value] = "the model fits without it"
        return choice

    def taken(self, planned: _Choice, before: ArenaEstimate | None, context: PassContext) -> _Choice:
        """Return the planned choice, or its opposite for all sums if that was measured to be faster."""
        other = {} if planned else self._trials({}, self.sums)[0]
        ways = {"as planned": planned, "apart" if planned else "fused": other}

        def estimates() -> Mapping[str, float]:
            found = {way: self.tried(choice)[1] if choice else before for way, choice in ways.items()}
            return {way: estimate.cycles for way, estimate in found.items() if estimate is not None}

        if context.choose("sums", "as planned", estimates) == "as planned":
            return planned
        self.reasons |= dict.fromkeys(planned, "without fusion the model was measured to be faster")
        return other

    def _large(self) -> _Sums:
        """Return the sums whose tensors are about as large as the largest ones."""
        sizes: dict[Value, int] = {}
        for value, operands in self.sums.items():
            node = self._producers[value]
            convolved = node.inputs[operands[0]]
            assert convolved is not None
            read = {*self._producers[convolved].operands, *node.operands} - set(self.graph.constants)
            sizes[value] = sum(tensor.type.nbytes for tensor in read)
        least = _LARGE * max(sizes.values())
        return {value: self.sums[value] for value, size in sizes.items() if size >= least}

    def _is_as_good(self, before: ArenaEstimate | None, fewer: _Choice, choice: _Choice) -> bool:
        """Return whether fewer sums are as good."""
        now, other = self.tried(choice)[1], self.tried(fewer)[1]
        if now is None or other is None or self.arenas.why_not(before, other) is not None:
            return False
        return other.cycles <= now.cycles

    def _within(self, value: Value, operands: Sequence[int], now: ArenaEstimate) -> list[int]:
        """Return the operands that are alive at the arena's peak."""
        inputs = self._producers[value].inputs
        return [index for index in operands if inputs[index] in now.peak_values]

    def _trials(self, choice: _Choice, sums: _Sums) -> Sequence[_Choice]:
        """Add these sums to a choice, with their first operands, and with their last ones if these differ."""
        found = [
            {**choice, **{value: operands[which] for value, operands in sums.items()}} for which in (0, -1)
        ]
        return found if found[0] != found[1] else found[:1]


def _sums(graph: Graph, context: PassContext) -> _Sums:
    """Return the sums that may be fused, and record the reasons for all others."""
    producers, uses = graph.producers(), graph.use_counts()
    found: dict[Value, list[int]] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Add) or node.output.type.dtype not in (DType.INT8, DType.FLOAT32):
            continue
        reasons: list[str] = []
        for index, value in enumerate(node.inputs):
            producer = producers.get(value) if value is not None else None
            if value is None or producer is None or not isinstance(producer.op, Conv2D):
                continue
            reason = f"%{value.name} has other readers" if uses[value] > 1 else None
            reason = reason or _why_not(node, index, producer, graph)
            reason = reason or not_computed(producer, _with_sum(producer, node, index), graph, context)
            if reason is None:
                found.setdefault(node.output, []).append(index)
            else:
                reasons.append(reason)
        if reasons and node.output not in found:
            context.declined(node, "; ".join(reasons))
    return found


def _why_not(node: Node, index: int, producer: Node, graph: Graph) -> str | None:
    residual = node.inputs[1 - index]
    assert residual is not None
    if residual in graph.constants:
        return f"%{residual.name} is constant"
    if residual.type.shape != node.output.type.shape or producer.output.type.shape != node.output.type.shape:
        return "an operand is broadcast"
    if refuses_layout(producer.op):
        return refuses_layout(producer.op)
    if any(not isinstance(step.op, Clip) for step in (*producer.epilogue, *node.epilogue)):
        return "an epilogue has other steps than clips"
    return None


def _with_sum(producer: Node, node: Node, index: int) -> Node:
    """Return a convolution that computes operand `index` of a sum, with the sum in its epilogue."""
    residual = node.inputs[1 - index]
    assert residual is not None
    return with_step(producer, EpilogueStep(node.op, (residual,)), node.output.name, node.epilogue)


def _fused(graph: Graph, choice: _Choice) -> Graph:
    """Return the graph with sums in the epilogues of convolutions, which move to the place of the sums."""

    def fuse(site: RewriteSite[None]) -> tuple[Value, ...] | None:
        which = choice.get(site.node.output)
        if which is None:
            return None
        producer, residual = site.producer(which), site.value(1 - which)
        assert producer is not None
        assert residual is not None
        steps = (*producer.epilogue, EpilogueStep(site.node.op, (residual,)), *site.epilogue)
        return site.emit(producer.op, *producer.inputs, epilogue=steps)

    return forward_rewrite(graph, {Add: fuse})
