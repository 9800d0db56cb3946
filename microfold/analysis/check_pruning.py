"""Checker of pruning proofs, independent of the analysis that made them.

A proof is valid under two conditions. Each claimed interval holds, by `element_ranges`. And no channel that
is
still computed depends on a removed one: its readers have no weight for it, or it contributes the same
constant
at every position of every reader, or the readers' channels are also removed.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from microfold.analysis.element_ranges import MOVEMENTS, Ends, element_ranges
from microfold.analysis.pruning_proof import PruningProof, Reason
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe
from microfold.ir.op import Pattern
from microfold.ir.types import Array, Tensor
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.pad import Pad
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin

_DATA = -1  # marks elements that are not pruned but sliced per reader: elements of constants, and padding


def check_pruning(graph: Graph, proof: PruningProof) -> list[str]:
    """Return the faults of a proof, in words; empty if the proof is valid.

    Args:
        graph: the graph before the pass.
    """
    return _Checker(graph, proof).run()


class _Checker:
    def __init__(self, graph: Graph, proof: PruningProof):
        self.graph = graph
        self.proof = proof
        self.ranges = element_ranges(graph)
        self.faults: list[str] = []
        self.removed: dict[Value, Array] = {}
        self.data: set[Value] = set(graph.constants)

    def run(self) -> list[str]:
        computed = {value for node in self.graph.nodes for value in node.outputs}
        for pruned in self.proof.values:
            if pruned.value not in computed:
                self.faults.append(f"%{pruned.value.name} is not a value that the graph computes")
                return self.faults
        self._check_intervals()
        for value in (*self.graph.outputs, *(state.next for state in self.graph.state)):
            if self._mask(value).any():
                self.faults.append(f"%{value.name} leaves the graph, but channels of it are removed")
        for node in self.graph.nodes:
            if node.op.has_effect or not all(self._is_gone(value) for value in node.outputs):
                self._check_node(node)
        return self.faults

    def _mask(self, value: Value) -> Array:
        """Return the removed channels of a value, bool [channels]."""
        channels = value.type.shape[-1] if value.type.shape else 1
        return self.removed.get(value, np.zeros(channels, np.bool_))

    def _is_gone(self, value: Value) -> bool:
        """Return whether nothing of the value is computed any more."""
        return value in self.data or bool(self._mask(value).all())

    def _check_intervals(self) -> None:
        for pruned in self.proof.values:
            value = pruned.value
            where = f"{pruned.layer} %{value.name}"
            mask = np.zeros_like(self._mask(value))
            ends = self.ranges.get(value)
            for claim in pruned.claims:
                if not 0 <= claim.channel < len(mask):
                    self.faults.append(f"{where} has no channel {claim.channel}")
                    continue
                mask[claim.channel] = claim.reason is not Reason.REPLACED
                found = _channel(ends, claim.channel)
                if found is None or found[0] < claim.low or found[1] > claim.high:
                    interval = f"[{claim.low}, {claim.high}]"
                    self.faults.append(
                        f"{where} channel {claim.channel} is claimed in {interval}; it is {found}"
                    )
                if claim.reason is not Reason.UNREAD and claim.low != claim.high:
                    self.faults.append(f"{where} channel {claim.channel} is not constant")
            self.removed[value] = mask
            if any(claim.reason is Reason.REPLACED for claim in pruned.claims):
                self.data.add(value)
                if len({claim.channel for claim in pruned.claims}) < len(mask):
                    self.faults.append(f"{where} became data, but not all of its channels are claimed")

    def _check_node(self, node: Node) -> None:
        op, where = node.op, describe(node)
        if isinstance(op, Conv2D | FullyConnected | TransposeConv2D | DepthwiseConv2D) and self._is_sum(node):
            self._check_sum(node)
        elif isinstance(op, MOVEMENTS):
            self._check_movement(node)
        elif self._is_channelwise(node):
            result = self._mask(node.output)
            for value in node.inputs:
                if value is None or value in self.data:
                    continue
                mask = self._mask(value)
                same = len(mask) == len(result) and np.array_equal(mask, result)
                if not same and (len(mask) > 1 or mask.any()):
                    self.faults.append(f"{where}: it does not keep the same channels as %{value.name}")
        else:
            for value in (*node.operands, *node.outputs):
                if self._mask(value).any():
                    self.faults.append(f"{where}: it needs all channels of %{value.name}")

    def _is_sum(self, node: Node) -> bool:
        return all(v is None or v in self.graph.constants for v in node.inputs[1:])

    def _is_channelwise(self, node: Node) -> bool:
        op, x = node.op, node.inputs[0] if node.inputs else None
        if x is None or len(node.outputs) != 1 or any(step.operands for step in node.epilogue):
            return False
        if isinstance(op, Mean | Sum | ReduceMax | ReduceMin):
            return len(x.type.shape) - 1 not in op.axes
        is_elementwise = op.pattern in (Pattern.ELEMENTWISE, Pattern.BROADCAST)
        return isinstance(op, MaxPool2D | AveragePool2D) or (
            is_elementwise and not isinstance(op, BroadcastTo)
        )

    def _check_movement(self, node: Node) -> None:
        """Check that the removed elements of the result are the removed elements of the operands."""
        op = replace(node.op, fill=float(_DATA)) if isinstance(node.op, Pad) else node.op
        marks: list[Tensor] = []
        for value in node.inputs:
            assert value is not None
            mask = np.full(value.type.shape, _DATA) if value in self.data else self._elements(value)
            # Element type and quantisation do not affect how elements move.
            marks.append(Tensor(value.type, mask.astype(np.int8)))
        moved = np.asarray(op.reference(*marks))
        result = self._elements(node.output)
        if not np.array_equal(np.where(moved == _DATA, result, moved), result):
            self.faults.append(f"{describe(node)}: it removes other elements than its operands")
        if isinstance(op, Pad) and op.padding[-1] != (0, 0) and result.any():
            self.faults.append(f"{describe(node)}: it pads channels")

    def _elements(self, value: Value) -> Array:
        return np.broadcast_to(self._mask(value), value.type.shape)

    def _check_sum(self, node: Node) -> None:
        x, filters = node.inputs[0], node.inputs[1]
        assert x is not None and filters is not None
        gone, kept = self._mask(x), np.flatnonzero(~self._mask(node.outputs[0]))
        array = self.graph.constants[filters]
        if isinstance(node.op, DepthwiseConv2D) and array.shape[3] != 1 and x.type.shape[3] != 1:
            expected = np.repeat(gone, array.shape[3] // x.type.shape[3])
            if x not in self.data and not np.array_equal(expected, self._mask(node.outputs[0])):
                self.faults.append(f"{describe(node)}: it does not keep the same channels as %{x.name}")
            return
        if isinstance(node.op, DepthwiseConv2D):
            array = array.transpose(3, 1, 2, 0)
        if array.shape[-1] != x.type.shape[-1]:
            if gone.any() or len(kept) < array.shape[0]:
                self.faults.append(f"{describe(node)}: it is grouped and needs all channels")
            return
        assert filters.type.quant is not None
        wide = array.astype(np.int64) - filters.type.quant.zero_points[0]
        weights = wide.reshape(array.shape[0], -1, array.shape[-1])
        for channel in np.flatnonzero(gone).tolist():
            column = weights[kept][:, :, channel]
            if column.any() and not self._adds_a_constant(node, x, channel, column):
                self.faults.append(f"{describe(node)}: it depends on channel {channel} of %{x.name}")

    def _adds_a_constant(self, node: Node, x: Value, channel: int, column: Array) -> bool:
        """Return whether an input channel contributes the same number to each output at every position.

        Args:
            column: weights of the channel, [outputs, taps].
        """
        found = _channel(self.ranges.get(x), channel)
        if found is None or found[0] != found[1]:
            return False
        assert x.type.quant is not None
        if found[0] == x.type.quant.zero_point or isinstance(node.op, FullyConnected):
            return True
        if not isinstance(node.op, Conv2D | DepthwiseConv2D):
            return False
        filters = node.inputs[1]
        assert filters is not None
        image = np.ones((1, *x.type.shape[1:3], 1), np.int64)
        inside = node.op.window(filters.type).patches(image, fill=0)
        sums = inside.reshape(-1, column.shape[1]) @ column.T
        return bool((sums == sums[0]).all())


def _channel(ends: Ends | None, channel: int) -> tuple[int, int] | None:
    """Return the smallest and largest value of a channel at any position."""
    if ends is None or ends.low.size == 0:
        return None
    if ends.low.ndim == 0:
        return int(ends.low), int(ends.high)
    return int(ends.low[..., channel].min()), int(ends.high[..., channel].max())
