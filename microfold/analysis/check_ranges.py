"""Checker of proved ranges and sums, independent of the analysis that found them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.analysis.element_ranges import Ends, element_ranges, element_reach, element_sums
from microfold.analysis.ranges import Ranges
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe
from microfold.ir.types import Array
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected


def check_ranges(graph: Graph, ranges: Ranges) -> list[str]:
    """Return the claims that `element_ranges` cannot confirm, in words; empty if all are valid.

    Args:
        graph: graph of these ranges.
    """
    found = element_ranges(graph)
    faults: list[str] = []
    for value, claim in ranges.values.items():
        ends = found.get(value)
        if ends is None:
            faults.append(f"%{value.name} is claimed in {claim.hull}; nothing is known about it")
        elif not _contains((claim.low, claim.high), ends):
            faults.append(f"%{value.name} is claimed in {claim.hull}; it reaches {_hull(ends)}")
    for node, sums in ranges.accumulators.items():
        if node not in ranges.product_sums:
            continue
        ends, reach = _sums(node, found)
        if not _contains((sums.low, sums.high), ends):
            claim = int(sums.low.min()), int(sums.high.max())
            faults.append(f"sums of {describe(node)} are claimed in {claim}; they reach {_hull(ends)}")
        if not _contains((-sums.partial, sums.partial), Ends(-reach, reach)):
            faults.append(
                f"parts of sums of {describe(node)} are claimed within {int(sums.partial.max())}; "
                f"they reach {int(reach.max())}"
            )
    return faults


def _sums(node: Node, found: Mapping[Value, Ends]) -> tuple[Ends, Array]:
    op = node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected | TransposeConv2D)
    present = [value for value in node.inputs if value is not None]
    operands, types = [found[value] for value in present], [value.type for value in present]
    return element_sums(op, operands, types), element_reach(op, operands, types)


def _contains(claim: tuple[Array, Array], ends: Ends) -> bool:
    """Return whether every element is in the claimed interval of its channel."""
    if ends.low.size == 0:
        return True
    low, high = (end.reshape(-1, claim[0].size).astype(np.int64) for end in ends)
    return bool((low >= claim[0]).all() and (high <= claim[1]).all())


def _hull(ends: Ends) -> tuple[int, int]:
    return int(ends.low.min()), int(ends.high.max())
