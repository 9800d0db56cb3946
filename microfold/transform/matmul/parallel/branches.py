"""Search for parallel branches, their combination, and the slices that split the result.

Branches are nodes of one operator with equal attributes that read one value, or reshapes of it to one shape,
and have different constants. A clip that is the only reader of a branch's result belongs to the branch. It
could not be fused after a slice of the combined result, so that only branches with equal clips are combined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import GraphBuilder, Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import Array, DType, Quant, TensorType
from microfold.ops.accumulate import has_wide_sums
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.movement.reshape import before_reshapes
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.passes.context import PassContext


class Branch(Struct, frozen=True):
    """Node, and the clip after it, if any."""

    node: Node
    clip: Node | None

    @property
    def output(self) -> Value:
        return self.node.output if self.clip is None else self.clip.output


class BranchWeights(Struct, frozen=True):
    """Weights and biases of the combined node. Output channels are along `axis` of the weights."""

    type: TensorType
    array: Array
    bias: Array | None


Key = Callable[[Node, Graph], "tuple[Hashable, ...] | str"]
Combine = Callable[[Sequence[Branch], Graph], "BranchWeights | str"]
Verdict = Callable[[Sequence[Branch]], "str | None"]
# Returns None or True if the nodes of a group may be combined, or False or a reason if not.
Check = Callable[[Sequence[Node]], "str | bool | None"]

# Default minimum number of branches of a group.
MIN_NUM_BRANCHES = 2


def combine_parallel(
    graph: Graph,
    context: PassContext,
    op_type: type[Op],
    key: Key,
    weights: Combine,
    why_not: Verdict,
    *,
    min_num_branches: int = MIN_NUM_BRANCHES,
    check: Check | None = None,
) -> Graph:
    """Combine branches along the last axis of their results.

    Args:
        key: returns a key that must be equal (in addition to operator, input and clip), or why a node is
            excluded.
        weights: returns the weights of the combined node, or why they do not exist.
        why_not: returns why a group is not profitable, or None if it is.
        min_num_branches: minimum number of branches of a group.
        check: additional condition of the caller for a group; None: no condition.

    Raises:
        InputError: `min_num_branches` is less than 2.
    """
    if min_num_branches < MIN_NUM_BRANCHES:
        raise InputError(f"min_num_branches must be at least {MIN_NUM_BRANCHES}; got {min_num_branches}")
    planned: dict[Node, tuple[Sequence[Branch], BranchWeights]] = {}
    for group in _groups(graph, context, op_type, key):
        combined = weights(group, graph)
        if len(group) < min_num_branches:
            reason: str | None = f"at least {min_num_branches} branches are required; found {len(group)}"
        elif isinstance(combined, str):
            reason = combined
        else:
            reason = _rejection(group, check) or why_not(group)
        names = ", ".join(f"%{branch.node.output.name}" for branch in group)
        if reason is None and isinstance(combined, BranchWeights):
            context.fired(group[0].node, f"one {group[0].node.op.name} computes {names}")
            planned[group[0].node] = (group, combined)
        else:
            context.declined(group[0].node, f"with {names}: {reason}")
    slices: dict[Value, Value] = {}

    def combine(site: RewriteSite[None]) -> Replacement:
        if site.node in planned:
            slices.update(_emit(site, *planned[site.node]))
        return slices.get(site.node.outputs[0]) if site.node.outputs else None

    return forward_rewrite(graph, combine) if planned else graph


def _rejection(group: Sequence[Branch], check: Check | None) -> str | None:
    """Return why the caller's check rejects a group, or None if it does not."""
    answer = check([branch.node for branch in group]) if check is not None else None
    if isinstance(answer, str):
        return answer
    return None if answer in (None, True) else "the check rejects them"


def _groups(graph: Graph, context: PassContext, op_type: type[Op], key: Key) -> list[list[Branch]]:
    consumers, ends = graph.consumers(), {*graph.outputs, *(state.next for state in graph.state)}
    producers = graph.producers()
    groups: defaultdict[Hashable, list[Branch]] = defaultdict(list)
    for node in graph.nodes:
        if not isinstance(node.op, op_type):
            continue
        own = key(node, graph) if not node.epilogue else "it has an epilogue"
        if isinstance(own, str):
            context.declined(node, own)
            continue
        readers = consumers.get(node.output, [])
        clip = readers[0] if len(readers) == 1 and node.output not in ends else None
        if clip is not None and (not isinstance(clip.op, Clip) or clip.epilogue):
            clip = None
        x = node.operands[0]
        source = before_reshapes(x, producers), x.type
        groups[node.op, source, clip.op if clip is not None else None, own].append(Branch(node, clip))
    for group in groups.values():
        if len(group) == 1:
            node = group[0].node
            reason = (
                f"no other {node.op.name} of %{node.operands[0].name} has its attributes, weights and clip"
            )
            context.declined(node, reason)
    return [group for group in groups.values() if len(group) > 1]


def _emit(site: RewriteSite[None], group: Sequence[Branch], weights: BranchWeights) -> dict[Value, Value]:
    """Emit the combined node, and return a slice of its result for the result of each branch."""
    builder, source = site.builder, site.value(0)
    assert source is not None
    whole = emit_combined(builder, group, source, weights, f"{site.node.output.name}_combined")
    slices: dict[Value, Value] = {}
    start = 0
    for branch in group:
        shape = branch.output.type.shape
        begin = (*(0 for _ in shape[:-1]), start)
        cut = StridedSlice(begin, shape, tuple(1 for _ in shape))
        (slices[branch.output],) = builder.emit(cut, [whole], [branch.output.name])
        start += shape[-1]
    return slices


def emit_combined(
    builder: GraphBuilder, group: Sequence[Branch], source: Value, weights: BranchWeights, name: str
) -> Value:
    """Emit the combined node and its clip, and return the result, which gets the name."""
    operands = [source, builder.constant(weights.array, weights.type, f"{name}_weights")]
    if weights.bias is not None:
        element = TensorType(DType(weights.bias.dtype.name), weights.bias.shape)
        operands.append(builder.constant(weights.bias, element, f"{name}_bias"))
    (whole,) = builder.emit(group[0].node.op, operands, [name])
    clip = group[0].clip
    if clip is not None:
        (whole,) = builder.emit(clip.op, [whole], [name])
    return whole


def concatenated_quant(types: Sequence[TensorType], axis: int) -> Quant | str | None:
    """Concatenate scales of weights along an axis: one per tensor if all are equal, else per channel."""
    quants = [type.quant for type in types]
    first = quants[0]
    if all(quant == first for quant in quants) and (first is None or first.axis is None):
        return first
    scales: list[float] = []
    for type, quant in zip(types, quants, strict=True):
        if quant is None:
            return "only some of the weights are quantised"
        if any(quant.zero_points):
            return "weights with a zero point cannot have a scale for each channel"
        scales += quant.scales if quant.axis is not None else quant.scales * type.shape[axis]
    return Quant(tuple(scales), (0,) * len(scales), axis)


def concatenated_weights(group: Sequence[Branch], graph: Graph, axis: int) -> BranchWeights | str:
    """Concatenate weights along the axis of output channels, and biases; absent biases become zeros."""
    values = [branch.node.operands[1] for branch in group]
    quant = concatenated_quant([value.type for value in values], axis)
    if isinstance(quant, str):
        return quant
    array = np.concatenate([graph.constants[value] for value in values], axis=axis)
    type = replace(values[0].type.with_shape(array.shape), quant=quant)
    biases = [branch.node.operands[2] if len(branch.node.operands) > 2 else None for branch in group]
    present = [bias for bias in biases if bias is not None]
    if not present:
        return BranchWeights(type, array, None)
    if len({bias.type.dtype for bias in present}) > 1:
        return "their biases have different types"
    x = group[0].node.operands[0].type
    if len({has_wide_sums(x, bias.type if bias is not None else None) for bias in biases}) > 1:
        return "only some of their sums wrap at 32 bits"
    parts = [
        graph.constants[bias]
        if bias is not None
        else np.zeros(value.type.shape[axis], present[0].type.dtype.numpy)
        for bias, value in zip(biases, values, strict=True)
    ]
    return BranchWeights(type, array, np.concatenate(parts))


NOT_CONSTANT = "its weights or biases are not constant"


def operands_are_constant(node: Node, graph: Graph) -> bool:
    """Return whether all operands except the first are constant."""
    return all(value in graph.constants for value in node.operands[1:])
