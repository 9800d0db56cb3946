"""Random networks over windows of frames, and what checks that runs over new frames give the same."""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph, verify
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean
from microfold.ops.window import Padding, Pair, same_padding
from microfold.transform.requested.slide_window import Sliding
from microfold.transform.requested.sliding.build import zeros
from tests.evaluation import random_array
from tests.plan.stream.nets import Nets


class WindowNets(Nets):
    """Draws networks of int8 without padding along one axis of images, the height or the width.

    Args:
        padded: how often a window is padded along it, or an image.

    Attributes:
        axis: of the input.
    """

    def __init__(self, seed: int, padded: float = 0.0):
        super().__init__(seed)
        self.padded = padded
        self.along = self.pick.choice([1, 1, 2])
        self.axis = self.along
        self.values: list[Value] = []

    def emit(self, op: Op, *inputs: Value) -> Value:
        node = make_node(op, inputs, [f"v{len(self.nodes)}"])
        self.nodes.append(node)
        return node.output

    def element(self) -> ElementType:
        return ElementType(DType.INT8, self.quant())

    def draw(self, *, pooled: bool = False) -> Graph:
        """A graph of one input, and one output or two.

        Args:
            pooled: it ends with a pool over the whole image.
        """
        frames, width = self.pick.randrange(8, 30), self.pick.choice([1, 1, 2, 4])
        channels = self.pick.choice([1, 3, 4, 8])
        image = (1, frames, width, channels) if self.along == 1 else (1, width, frames, channels)
        shape = image
        if self.along == 1 and self.pick.random() < 0.4:
            shape, self.axis = self.pick.choice(
                [((1, frames * width * channels), 1), ((frames, width, channels), 0)]
            )
        given = Value("frames", TensorType(DType.INT8, shape, self.quant()))
        self.values = [given if shape == image else self.emit(Reshape(image), given)]
        for _ in range(self.pick.randrange(1, 8)):
            x = self.values[-1]
            if x.type.shape[self.along] < 3:
                break
            self.values.append(self.step(x))
        x = self.values[-1]
        kind = "pool" if pooled else self.pick.choice(["pool", "mean", "dense", "last", "rows", "max"])
        outputs = [self.head(kind, x)]
        if self.pick.random() < 0.2:
            outputs.append(self.pick.choice(self.values[1:] or outputs))
        nodes, read = [], set(outputs)
        for node in reversed(self.nodes):
            if node.output in read:
                nodes.append(node)
                read |= set(node.operands)
        constants = {value: array for value, array in self.constants.items() if value in read}
        graph = Graph("net", (given,), tuple(dict.fromkeys(outputs)), tuple(reversed(nodes)), constants)
        verify(graph)
        return graph

    def head(self, kind: str, x: Value) -> Value:
        _, height, width, _ = x.type.shape
        if kind in ("pool", "max"):
            op = AveragePool2D if kind == "pool" else MaxPool2D
            return self.emit(op((height, width), (height, width), ((0, 0), (0, 0))), x)
        if kind == "mean":
            return self.emit(Mean((1, 2), self.pick.random() < 0.5, self.element()), x)
        if kind == "dense":
            flat = self.emit(Reshape((1, x.type.size)), x)
            return self.emit(FullyConnected(self.element()), flat, self.weights((3, x.type.size), 0))
        if kind == "last":
            return self.cropped(x, x.type.shape[self.along] - 1, 1)
        return x

    def cropped(self, x: Value, first: int, count: int, step: int = 1) -> Value:
        begin, size, strides = [0] * 4, list(x.type.shape), [1] * 4
        begin[self.along], size[self.along], strides[self.along] = first, count, step
        return self.emit(StridedSlice(tuple(begin), tuple(size), tuple(strides)), x)

    def step(self, x: Value) -> Value:
        length = x.type.shape[self.along]
        kinds = ["conv", "conv", "depthwise", "depthwise", "max", "mean", "join", "residual", "residual"]
        kinds += ["clip", "scale", "unary", "turn", "slice", "points", "pad"]
        kind = self.pick.choice(kinds)
        if kind == "clip":
            return self.emit(Clip(0.0, 6.0), x)
        if kind == "unary":
            unit = ElementType(DType.INT8, Quant.per_tensor(1 / 256, -128))
            return self.emit(Logistic(unit), x)
        if kind == "scale":
            scales = Value(
                f"s{len(self.constants)}", TensorType(DType.INT8, (x.type.shape[3],), self.quant())
            )
            self.constants[scales] = self.rng.integers(-127, 128, scales.type.shape).astype(np.int8)
            return self.emit(Mul(self.element()), x, scales)
        if kind == "turn":
            turned = self.emit(Transpose((0, 2, 1, 3)), x)
            return self.emit(Transpose((0, 2, 1, 3)), self.emit(Clip(-3.0, 6.0), turned))
        if kind == "slice":
            first = self.pick.randrange(0, 2)
            step = self.pick.choice([1, 2])
            return (
                self.cropped(x, first, (length - 1 - first) // step, step)
                if length - 1 - first >= step
                else x
            )
        if kind == "pad":
            pad = self.pick.randrange(1, 3) if self.pick.random() < self.padded else 0
            padding = (
                [(0, 0), (0, 0), (0, 1), (0, 0)] if self.along == 1 else [(0, 0), (0, 1), (0, 0), (0, 0)]
            )
            padding[self.along] = (pad, 0)
            assert x.type.quant is not None
            return self.emit(Pad(tuple(padding), float(x.type.quant.zero_point)), x)
        if kind in ("residual", "join"):
            return self.merged(kind, x)
        if kind == "points":
            rows = self.emit(Reshape((x.type.size // x.type.shape[3], x.type.shape[3])), x)
            product = self.emit(FullyConnected(self.element()), rows, self.weights((4, x.type.shape[3]), 0))
            return self.emit(Reshape((*x.type.shape[:3], 4)), product)
        return self.windowed(kind, x)

    def merged(self, kind: str, x: Value) -> Value:
        """The value joined with an earlier one, whose rows are cropped to fit."""
        shape = x.type.shape
        others = [v for v in self.values[:-1] if v.type.shape[self.along] >= shape[self.along]]
        across = 3 - self.along
        others = [v for v in others if v.type.shape[across] == shape[across]]
        if kind == "residual":
            others = [v for v in others if v.type.shape[3] == shape[3]]
        else:
            others = [v for v in others if v.type.quant == x.type.quant]
        if not others:
            return x
        other = self.pick.choice(others)
        spare = other.type.shape[self.along] - shape[self.along]
        first = self.pick.randrange(0, spare + 1)
        if spare:
            other = self.cropped(other, first, shape[self.along])
        return self.emit(Add(self.element()) if kind == "residual" else Concatenate(3), x, other)

    def windowed(self, kind: str, x: Value) -> Value:
        size, strides, dilations, padding = self.frames_window(x, dilated=kind in ("conv", "depthwise"))
        channels = x.type.shape[3]
        if kind in ("max", "mean"):
            return self.emit((MaxPool2D if kind == "max" else AveragePool2D)(size, strides, padding), x)
        if kind == "depthwise":
            weights = self.weights((1, *size, channels), 3)
            return self.emit(DepthwiseConv2D(strides, dilations, padding, self.element()), x, weights)
        weights = self.weights((self.pick.choice([2, 4, 8]), *size, channels), 0)
        return self.emit(Conv2D(strides, dilations, padding, self.element()), x, weights)

    def frames_window(self, x: Value, *, dilated: bool) -> tuple[Pair, Pair, Pair, Padding]:
        """Size, strides, dilations and padding."""
        length, across = x.type.shape[self.along], x.type.shape[3 - self.along]
        extent = min(self.pick.choice([1, 2, 3, 3, 5]), length)
        stride = self.pick.choice([1, 1, 1, 2, 3])
        dilation = self.pick.choice([1, 1, 2]) if dilated else 1
        if (extent - 1) * dilation + 1 > length:
            dilation = 1
        reach = (extent - 1) * dilation + 1
        pads = (0, 0)
        if self.pick.random() < self.padded and extent > 1:
            pads = self.pick.choice([(min(reach - 1, extent - 1), 0), (1, 0), (0, 1)])
        other = min(self.pick.choice([1, 3]), across)
        pair = [(extent, other), (stride, 1), (dilation, 1), (pads, same_padding(across, other, 1))]
        if self.along == 2:
            pair = [(b, a) for a, b in pair]
        return tuple(pair)  # type: ignore[return-value]


def frames_of(graph: Graph, axis: int, count: int, rng: np.random.Generator) -> list[Array]:
    """So many frames for a graph's input, one element of the axis each; the extremes are among them."""
    (value,) = graph.inputs
    shape = (*value.type.shape[:axis], count, *value.type.shape[axis + 1 :])
    frames = random_array(rng, value.type.with_shape(shape))
    if not value.type.dtype.is_float and rng.random() < 0.3:
        low, high = value.type.dtype.range
        frames = np.where(rng.random(shape) < 0.5, low, high).astype(frames.dtype)
    return np.split(frames, count, axis)


def check_frames(window: Graph, run: Graph, sliding: Sliding, seed: int = 0) -> None:
    """Each run gives the outputs of the window over the last frames, from the first run on."""
    verify(run)
    rng = np.random.default_rng(seed)
    axis, step = sliding.axis, sliding.step
    new, whole = Interpreter(run), Interpreter(window)
    frames = np.split(zeros(window.inputs[0]), sliding.frames, axis)
    for index in range(2 * sliding.warmup_runs + 3):
        added = frames_of(window, axis, step, rng)
        frames = [*frames, *added][-sliding.frames :]
        results = new.run(np.concatenate(added, axis))
        with np.errstate(all="ignore"):
            expected = whole.run(np.concatenate(frames, axis))
        for result, wanted in zip(results, expected, strict=True):
            if wanted.dtype.kind == "f":
                largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-30))
                np.testing.assert_allclose(
                    result, wanted, rtol=0, atol=1e-5 * largest, err_msg=f"run {index}"
                )
            else:
                np.testing.assert_array_equal(result, wanted, err_msg=f"run {index}")
