"""Nodes for some columns at a time: the same meaning, and which columns tiles compute."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest
from msgspec.structs import replace

from microfold.ir.graph import Graph, verify
from microfold.ir.node import Node, Value, make_node
from microfold.ir.text import parse, to_text
from microfold.lowering.tile_columns import Tiled, tile_columns
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from tests.evaluation import assert_same_meaning
from tests.plan.stream.nets import Nets

WINDOW = "size=(3, 3), strides=(1, 1), padding=((1, 1), (1, 1))"
RESIDUAL = f"""
graph @g(%x: float32[1,4,8,2]) -> (%z) {{
  %a: float32[1,4,8,2] = max_pool2d(%x) {{{WINDOW}}}
  %y: float32[1,4,8,2] = add(%a, %x)
  %z: float32[1,4,8,2] = abs(%y)
}}
"""


def turned(graph: Graph) -> Graph:
    """The network with rows for columns, and columns for rows."""
    values: dict[Value, Value] = {}

    def other(value: Value | None) -> Value | None:
        if value is None or value.type.rank != 4:
            return value
        if value not in values:
            batch, rows, columns, channels = value.type.shape
            values[value] = Value(value.name, value.type.with_shape((batch, columns, rows, channels)))
        return values[value]

    nodes: list[Node] = []
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Conv2D | DepthwiseConv2D):
            op = replace(op, strides=op.strides[::-1], dilations=op.dilations[::-1], padding=op.padding[::-1])
        elif isinstance(op, MaxPool2D | AveragePool2D):
            op = replace(op, size=op.size[::-1], strides=op.strides[::-1], padding=op.padding[::-1])
        made = make_node(op, [other(value) for value in node.inputs], [node.output.name], node.epilogue)
        values[node.output] = made.output
        nodes.append(made)
    constants = {
        other(value) or value: np.ascontiguousarray(array.swapaxes(1, 2))
        for value, array in graph.constants.items()
    }
    ends = [tuple(other(value) or value for value in found) for found in (graph.inputs, graph.outputs)]
    found = Graph(graph.name, ends[0], ends[1], tuple(nodes), constants)
    verify(found)
    return found


def test_tiles() -> None:
    """Columns that the sum needs are a part of what the pool needs: a slice of it."""
    found = tile_columns(parse(dedent(RESIDUAL)), 0, 2, (0, 4, 8))
    assert isinstance(found, Tiled)
    verify(found.graph)
    left, right = (f"{WINDOW[:-9]}, {sides})" for sides in ("(1, 0)", "(0, 1)"))
    begin = "size=(1, 4, 5, 2), strides=(1, 1, 1, 1)"
    part = "size=(1, 4, 4, 2), strides=(1, 1, 1, 1)"
    expected = f"""
    graph @g(%x: float32[1,4,8,2]) -> (%z) {{
      %x.0: float32[1,4,5,2] = strided_slice(%x) {{begin=(0, 0, 0, 0), {begin}}}
      %a.0: float32[1,4,4,2] = max_pool2d(%x.0) {{{left}}}
      %x.0/0: float32[1,4,4,2] = strided_slice(%x.0) {{begin=(0, 0, 0, 0), {part}}}
      %y.0: float32[1,4,4,2] = add(%a.0, %x.0/0)
      %x.1: float32[1,4,5,2] = strided_slice(%x) {{begin=(0, 0, 3, 0), {begin}}}
      %a.1: float32[1,4,4,2] = max_pool2d(%x.1) {{{right}}}
      %x.1/4: float32[1,4,4,2] = strided_slice(%x.1) {{begin=(0, 0, 1, 0), {part}}}
      %y.1: float32[1,4,4,2] = add(%a.1, %x.1/4)
      %y: float32[1,4,8,2] = concatenate(%y.0, %y.1) {{axis=2}}
      %z: float32[1,4,8,2] = abs(%y)
    }}
    """
    assert to_text(found.graph) == dedent(expected).lstrip()
    assert [[node.output.name for node in tile.slices] for tile in found.tiles] == [["x.0"], ["x.1"]]


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_networks(first: int) -> None:
    """All prefixes, in tiles of equal and of other widths: the same bits, and weights once."""
    checked = 0
    for seed in range(first, first + 20):
        graph = turned(Nets(seed).draw())
        for end in range(1, len(graph.nodes) + 1):
            width = graph.nodes[end - 1].output.type.shape[2]
            for count in (1, 2, 3):
                inner = (max(width * tile // count - (tile > 1), 0) for tile in range(1, count))
                bounds = sorted({0, *inner, width})
                found = tile_columns(graph, 0, end, bounds)
                if isinstance(found, str):
                    continue
                verify(found.graph)
                assert_same_meaning(graph, found.graph)
                assert {id(array) for array in found.graph.constants.values()} == {
                    id(array) for array in graph.constants.values()
                }
                checked += count > 1
    assert checked > 40


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("%y: float32[1,8,4,2] = transpose(%a) {permutation=(0, 2, 1, 3)}", "no rule"),
        ("%y: float32[1,4,16,2] = concatenate(%a, %x) {axis=2}", "concatenates along the columns"),
    ],
)
def test_refused(line: str, reason: str) -> None:
    result = line[: line.index(" =")].removeprefix("%y: ")
    text = f"""
    graph @g(%x: float32[1,4,8,2]) -> (%z) {{
      %a: float32[1,4,8,2] = abs(%x)
      {line}
      %z: {result} = abs(%y)
    }}
    """
    width = parse(dedent(text)).nodes[1].output.type.shape[2]
    found = tile_columns(parse(dedent(text)), 0, 2, (0, 2, width))
    assert isinstance(found, str)
    assert reason in found


def test_results_of_other_widths_are_refused() -> None:
    """One of the values behind the tiles is the input of a pool, the other one its result."""
    text = RESIDUAL.replace("add(%a, %x)", "add(%a, %a)")
    found = tile_columns(parse(dedent(text)), 0, 2, (0, 3, 7))
    assert isinstance(found, str)
    assert "no image of 7 columns" in found
