"""Random networks of operators that work by rows, and what computes them row by row on bytes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np

from microfold import target
from microfold.analysis.ranges import analyze
from microfold.ir.graph import Graph, verify
from microfold.ir.node import Node, Value, make_node
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import candidates
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.add import Add
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.slice_view import SliceView
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.window import Padding, same_padding
from microfold.plan.stream.memory import StreamMemory
from microfold.plan.stream.operations import (
    Fill,
    IndirectionBuffer,
    MoveRows,
    Operation,
    ReceiveRow,
    RowsCall,
    WindowAddress,
)
from microfold.plan.stream.planner import StreamPlanner
from microfold.plan.stream.region import StreamRegion, region_of
from microfold.plan.stream.row_node import RowNode, as_row_node, pitch

CORE = target.load("cortex-m4")


class Nets:
    """Draws networks: windows, strides, dilation, padding, residual additions, concatenations."""

    dtype = DType.INT8

    def __init__(self, seed: int):
        self.pick = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.constants: dict[Value, Array] = {}
        self.nodes: list[Node] = []

    def quant(self) -> Quant | None:
        return Quant.per_tensor(float(self.rng.uniform(0.02, 0.2)), int(self.rng.integers(-20, 20)))

    def weights(self, shape: tuple[int, ...], axis: int) -> Value:
        scales = tuple(float(np.float32(s)) for s in self.rng.uniform(0.002, 0.02, shape[axis]))
        quant = Quant(scales, (0,) * shape[axis], axis)
        value = Value(f"w{len(self.constants)}", TensorType(DType.INT8, shape, quant))
        self.constants[value] = self.rng.integers(-127, 128, shape).astype(np.int8)
        return value

    def draw(self, *, pooled: bool = False) -> Graph:
        """A graph of one input and one output.

        Args:
            pooled: it ends with a pool over the whole image.
        """
        shape = (1, self.pick.randrange(6, 16), self.pick.randrange(4, 8), self.pick.choice([1, 3, 4]))
        image = Value("image", TensorType(self.dtype, shape, self.quant()))
        values = [image]
        for _ in range(self.pick.randrange(2, 8)):
            if values[-1].type.shape[1] < 3:
                break
            node = self.node(values)
            self.nodes.append(node)
            values.append(node.output)
        if pooled:
            height, width = values[-1].type.shape[1:3]
            mean = AveragePool2D((height, width), (1, 1), ((0, 0), (0, 0)))
            self.nodes.append(make_node(mean, [values[-1]], ["pooled"]))
            values.append(self.nodes[-1].output)
        read, kept = {values[-1]}, list[Node]()
        for node in reversed(self.nodes):
            if node.output in read:
                kept.append(node)
                read |= set(node.operands)
        constants = {value: array for value, array in self.constants.items() if value in read}
        graph = Graph("net", (image,), (values[-1],), tuple(reversed(kept)), constants)
        verify(graph)
        return graph

    def tall(self) -> Graph:
        """A network whose tensors are far larger than their rows."""
        image = Value("image", TensorType(DType.INT8, (1, 40, 6, 4), self.quant()))
        same = same_padding(40, 3, 1), same_padding(6, 3, 1)
        out = [ElementType(DType.INT8, self.quant()) for _ in range(3)]
        first = make_node(
            Conv2D((1, 1), (1, 1), same, out[0]), [image, self.weights((8, 3, 3, 4), 0)], ["first"]
        )
        second = make_node(
            DepthwiseConv2D((1, 1), (1, 1), same, out[1]),
            [first.output, self.weights((1, 3, 3, 8), 3)],
            ["second"],
        )
        third = make_node(Add(out[2]), [second.output, first.output], ["third"])
        pool = make_node(AveragePool2D((40, 6), (1, 1), ((0, 0), (0, 0))), [third.output], ["pooled"])
        graph = Graph("tall", (image,), (pool.output,), (first, second, third, pool), self.constants)
        verify(graph)
        return graph

    def halves(self) -> Graph:
        """The upper half of an image that is computed, added to the lower one: both are parts of it.

        Of the sum, something else is computed.
        """
        image = Value("image", TensorType(DType.INT8, (1, 8, 5, 3), self.quant()))
        out = [ElementType(DType.INT8, self.quant()) for _ in range(3)]
        none = ((0, 0), (0, 0))
        first = make_node(
            Conv2D((1, 1), (1, 1), none, out[0]), [image, self.weights((3, 1, 1, 3), 0)], ["first"]
        )
        upper, lower = (
            make_node(SliceView((0, row, 0, 0), (1, 4, 5, 3)), [first.output], [name])
            for row, name in ((0, "upper"), (4, "lower"))
        )
        total = make_node(Add(out[1]), [upper.output, lower.output], ["total"])
        last = make_node(
            Conv2D((1, 1), (1, 1), none, out[2]), [total.output, self.weights((3, 3, 3, 3), 0)], ["last"]
        )
        nodes = first, upper, lower, total, last
        graph = Graph("halves", (image,), (last.output,), nodes, self.constants)
        verify(graph)
        return graph

    def narrow(self) -> Graph:
        """Two pairs of a pointwise and a depthwise convolution on rows of 5 pixels."""
        image = Value("image", TensorType(DType.INT8, (1, 12, 5, 64), self.quant()))
        same = same_padding(12, 3, 1), same_padding(5, 3, 1)
        nodes: list[Node] = []
        x = image
        for index in range(2):
            points = Conv2D((1, 1), (1, 1), ((0, 0), (0, 0)), ElementType(DType.INT8, self.quant()))
            weights = self.weights((64, 1, 1, x.type.shape[3]), 0)
            nodes.append(make_node(points, [x, weights], [f"points{index}"]))
            columns = DepthwiseConv2D((1, 1), (1, 1), same, ElementType(DType.INT8, self.quant()))
            weights = self.weights((1, 3, 3, 64), 3)
            nodes.append(make_node(columns, [nodes[-1].output, weights], [f"columns{index}"]))
            x = nodes[-1].output
        nodes.append(make_node(AveragePool2D((12, 5), (1, 1), ((0, 0), (0, 0))), [x], ["pooled"]))
        graph = Graph("narrow", (image,), (nodes[-1].output,), tuple(nodes), self.constants)
        verify(graph)
        return graph

    def node(self, values: list[Value]) -> Node:
        x, name = values[-1], f"v{len(values)}"
        _, height, width, channels = x.type.shape
        kind = self.pick.choice(["conv", "pointwise", "depthwise", "depthwise", "max", "mean", "add", "join"])
        out = ElementType(self.dtype, self.quant())
        if kind == "add":
            others = [v for v in values[:-1] if v.type.shape == x.type.shape]
            if others:
                return make_node(Add(out), [x, self.pick.choice(others)], [name])
        if kind == "join":
            others = [
                v
                for v in values[:-1]
                if v.type.shape[1:3] == (height, width) and v.type.quant == x.type.quant
            ]
            if others:
                return make_node(Concatenate(3), [x, self.pick.choice(others)], [name])
        size, stride, dilation, padding = self.window(height, width)
        if kind in ("max", "mean"):
            padding = padding if kind == "max" or self.pick.random() < 0.5 else ((0, 0), (0, 0))
            size = (min(size[0], 3), size[1])
            same = same_padding(height, size[0], stride), padding[1]
            op = MaxPool2D if kind == "max" else AveragePool2D
            return make_node(op(size, (stride, 1), same if any(padding[0]) else padding), [x], [name])
        if kind == "depthwise":
            weights = self.weights((1, *size, channels), 3)
            return make_node(DepthwiseConv2D((stride, 1), (dilation, 1), padding, out), [x, weights], [name])
        if kind == "pointwise":
            size, stride, dilation, padding = (1, 1), 1, 1, ((0, 0), (0, 0))
        weights = self.weights((self.pick.choice([2, 4, 5, 8]), *size, channels), 0)
        return make_node(Conv2D((stride, 1), (dilation, 1), padding, out), [x, weights], [name])

    def window(self, height: int, width: int) -> tuple[tuple[int, int], int, int, Padding]:
        """Size, stride and dilation of rows, and padding."""
        size = (min(self.pick.choice([1, 2, 3, 3, 5]), height), min(self.pick.choice([1, 3]), width))
        stride = self.pick.choice([1, 1, 2, 3])
        dilation = self.pick.choice([1, 1, 1, 2])
        extent = (size[0] - 1) * dilation + 1
        if extent > height:
            dilation, extent = 1, size[0]
        if self.pick.random() < 0.6:
            return (
                size,
                stride,
                dilation,
                (same_padding(height, extent, stride), same_padding(width, size[1], 1)),
            )
        return size, stride, dilation, ((0, 0), (0, 0))


class Varied(Nets):
    """The same with more kinds of layers, and strides along the width; of int8, int16 or float32."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.dtype = (DType.INT8, DType.INT16, DType.FLOAT32)[seed % 3]

    def quant(self) -> Quant | None:
        if self.dtype is DType.FLOAT32:
            return None
        found = super().quant()
        assert found is not None
        return Quant.per_tensor(found.scale, 0) if self.dtype is DType.INT16 else found

    def weights(self, shape: tuple[int, ...], axis: int) -> Value:
        if self.dtype is not DType.FLOAT32:
            return super().weights(shape, axis)
        value = Value(f"w{len(self.constants)}", TensorType(DType.FLOAT32, shape))
        self.constants[value] = self.rng.uniform(-0.5, 0.5, shape).astype(np.float32)
        return value

    def node(self, values: list[Value]) -> Node:
        """One more kind in about half of the layers."""
        x, name = values[-1], f"v{len(values)}"
        _, height, width, channels = x.type.shape
        kind = self.pick.choice(["pad", "nearest", "transposed", "strided", "strided", None, None, None])
        out = ElementType(self.dtype, self.quant())
        if kind == "pad":
            rows, columns = ((self.pick.randrange(3), self.pick.randrange(3)) for _ in range(2))
            zero = x.type.quant.zero_point if x.type.quant is not None else 0
            return make_node(Pad(((0, 0), rows, columns, (0, 0)), zero), [x], [name])
        if kind == "nearest" and height <= 10:
            return make_node(ResizeNearestNeighbor((2 * height, 2 * width), False, False), [x], [name])
        if kind == "transposed" and height <= 8:
            size = self.pick.choice([2, 3])
            weights = self.weights((self.pick.choice([2, 4, 8]), size, size, channels), 0)
            return make_node(
                TransposeConv2D((2, 2), (0, 0), (2 * height, 2 * width), out), [x, weights], [name]
            )
        if kind == "strided" and min(height, width) >= 3:
            same = same_padding(height, 3, 2), same_padding(width, 3, 2)
            padding = same if self.pick.random() < 0.6 else ((0, 0), (0, 0))
            if self.pick.random() < 0.5:
                weights = self.weights((1, 3, 3, channels), 3)
                return make_node(DepthwiseConv2D((2, 2), (1, 1), padding, out), [x, weights], [name])
            weights = self.weights((self.pick.choice([4, 8, 12]), 3, 3, channels), 0)
            return make_node(Conv2D((2, 2), (1, 1), padding, out), [x, weights], [name])
        return super().node(values)


def layers_of(graph: Graph) -> list[LayerContext]:
    ranges = analyze(graph)
    return [LayerContext(node, graph.constants, CORE, ranges) for node in graph.nodes]


def region(
    graph: Graph, count: int, widths: Sequence[int] = (1,), start: int = 0, *, pushed: bool = True
) -> StreamRegion | str:
    """Nodes that follow each other as a region, or why not.

    Args:
        count: how many nodes come before those behind it.
        widths: rows of each call, for the nodes in turn.
        start: how many nodes come before it.
        pushed: rows of the input are handed in; otherwise it is there whole.
    """
    rows: list[RowNode] = []
    for index, layer in enumerate(layers_of(graph)[start:count]):
        found = as_row_node(layer, widths[index % len(widths)])
        if isinstance(found, str):
            return found
        rows.append(found)
    return region_of(graph, rows, start, None if pushed else ())


def planned(graph: Graph, found: StreamRegion) -> tuple[StreamPlanner, list[Kernel]]:
    """A planner for a region with kernels."""
    layers = {layer.node: layer for layer in layers_of(graph)}
    planner = StreamPlanner([found], layers)
    return planner, [candidates(layer)[0].kernel for layer in planner.layers]


class Bytes:
    """An arena of bytes on which a stream's operations are done, each band by its operator's reference.

    Attributes:
        got: rows that calls have computed, by value and number.
    """

    def __init__(self, memory: StreamMemory, image: Array):
        (self.region,) = memory.timeline.regions
        self.windows, self.newest = memory.windows, memory.newest
        size = memory.size
        self.image = image
        self.memory = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
        self.got: dict[tuple[Value, int], Array] = {}

    def run(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            match operation:
                case ReceiveRow(_, row, spot):
                    self.write(spot, self.image[:, row])
                case Fill(value, first, last, spot):
                    count = (last - first) * pitch(value) // value.type.dtype.itemsize
                    self.write(spot, np.full(count, self.region.fill(value), value.type.dtype.numpy))
                case MoveRows(source, target, size):
                    self.memory[self.at(target) :][:size] = self.memory[self.at(source) :][:size].copy()
                case RowsCall():
                    self.call(operation)

    def at(self, spot: WindowAddress) -> int:
        return (self.newest if spot.newest else self.windows)[spot.value] + spot.offset

    def write(self, spot: WindowAddress, array: Array) -> None:
        data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        self.memory[self.at(spot) :][: data.size] = data

    def call(self, call: RowsCall) -> None:
        band = call.node.bands[call.node.forms[call.part]]
        node = band.layer.node
        tensors = {
            v: Tensor(v.type, band.layer.constants[v]) for v in node.operands if v in band.layer.constants
        }
        for index, spot in zip(call.node.readings, call.inputs, strict=True):
            value = node.inputs[index]
            assert value is not None
            spots = spot.spots if isinstance(spot, IndirectionBuffer) else (spot,)
            length = value.type.nbytes // len(spots)
            data = np.concatenate([self.memory[self.at(each) :][:length] for each in spots])
            tensors[value] = Tensor(value.type, data.view(value.type.dtype.numpy).reshape(value.type.shape))
        (result,) = node.evaluate(tensors)
        for index, row in enumerate(range(*call.node.written(call.part))):
            self.got[call.node.output, row] = result.data[:, index]
        self.write(call.output, result.data)
