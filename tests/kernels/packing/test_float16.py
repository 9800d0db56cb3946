"""float16 kernels: in portable C on this machine, and in vectors on the simulated core."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.types import Array, DType, ElementType, TensorType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.cores import load
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools

SAME3 = ((1, 1), (1, 1))


def as_float16(graph: Graph) -> Graph:
    """A one-node int8 graph of a product sum in float16."""
    node = graph.nodes[0]
    renamed: dict[Value, Value] = {}
    constants: dict[Value, Array] = {}
    for value in node.operands:
        renamed[value] = Value(value.name, TensorType(DType.FLOAT16, value.type.shape))
        array = graph.array(value)
        if array is not None:
            scale = 64 if value.type.dtype is DType.INT8 else 4096
            constants[renamed[value]] = (array / scale).astype(np.float16)
    op = replace(node.op, out=ElementType(DType.FLOAT16))  # type: ignore[call-arg]
    inputs = [renamed[v] if v is not None else None for v in node.inputs]
    new = make_node(op, inputs, ["out"], node.epilogue)
    return Graph(graph.name, tuple(renamed[v] for v in graph.inputs), new.outputs, (new,), constants)


PRODUCTS: dict[str, Graph] = {
    "conv2d 3x3, relu": graphs.conv2d_graph(6, 7, 4, 8, padding=SAME3, activation=graphs.RELU),
    "conv2d odd, batch 2": graphs.conv2d_graph(
        3, 5, 3, 5, padding=((0, 1), (1, 0)), strides=(2, 1), batch=2, activation=graphs.RELU6
    ),
    "conv2d dilated": graphs.conv2d_graph(
        9,
        9,
        3,
        21,
        dilations=(3, 2),
        padding=((3, 3), (2, 2)),
        bias=False,
        activation=graphs.Clip(-16.0, 10.0),
    ),
    "conv2d one product": graphs.conv2d_graph(2, 3, 1, 8, (1, 1)),
    "conv2d 65 products": graphs.conv2d_graph(3, 3, 65, 3, (1, 1)),
    "conv2d 72 products": graphs.conv2d_graph(5, 5, 8, 9, padding=SAME3, activation=graphs.RELU),
    "conv2d 1x1": graphs.conv2d_graph(3, 5, 45, 19, (1, 1), batch=3),
    "depthwise_conv2d 3x3": graphs.depthwise_conv2d_graph(6, 7, 8, padding=SAME3, activation=graphs.RELU),
    "depthwise_conv2d odd, batch 2": graphs.depthwise_conv2d_graph(
        7, 6, 13, padding=((0, 1), (0, 1)), strides=(2, 2), batch=2, activation=graphs.RELU6
    ),
    "depthwise_conv2d dilated": graphs.depthwise_conv2d_graph(
        9, 11, 3, (3, 5), dilations=(2, 3), padding=((2, 3), (6, 6)), bias=False
    ),
    "depthwise_conv2d growing": graphs.depthwise_conv2d_graph(2, 2, 3, padding=((2, 2), (2, 2)), batch=2),
    "fully_connected 77": graphs.fully_connected_graph(77, 45, activation=graphs.RELU),
    "fully_connected batch 3": graphs.fully_connected_graph(13, 7, batch=3, bias=False),
}


def _half(name: str, *shape: int) -> Value:
    return Value(name, TensorType(DType.FLOAT16, shape))


def _others() -> dict[str, Graph]:
    """Operators without weights."""
    element = ElementType(DType.FLOAT16)
    image, wide = _half("x", 1, 5, 6, 11), Value("x", TensorType(DType.FLOAT32, (1, 5, 6, 11)))
    pairs = {
        "add": (Add(element), _half("y", 1, 5, 6, 11), graphs.RELU),
        "sub": (Sub(element), _half("y", 11), None),
        "mul": (Mul(element), _half("y", 1, 5, 1, 11), graphs.Clip(-3.0, 2.0)),
        "maximum": (Maximum(), _half("y", 1, 1, 6, 1), None),
        "minimum": (Minimum(), _half("y", 1, 5, 6, 11), None),
    }
    found = {
        name: graphs.one_node_graph(op, [image, other], {}, clip) for name, (op, other, clip) in pairs.items()
    }
    same = ((2, 2), (1, 1), ((1, 0), (0, 1)))
    for op, x, clip in (
        (MaxPool2D((3, 2), (2, 1), ((1, 1), (0, 0))), image, graphs.RELU6),
        (AveragePool2D(*same), image, None),
        (Clip(-0.5, 2.0), image, None),
        (Mean((1, 2), False, element), image, None),
        (Cast(DType.FLOAT16), wide, None),
        (Cast(DType.FLOAT32), image, None),
    ):
        name = op.name if not isinstance(op, Cast) else f"cast to {op.dtype.value}"
        found[name] = graphs.one_node_graph(op, [x], {}, clip)
    return found


OTHERS = _others()


@pytest.mark.always
@pytest.mark.parametrize(
    ("core", "flags"),
    [
        ("host", ()),
        pytest.param("cortex-m55", (), marks=pytest.mark.slow),
        pytest.param("cortex-m55", ("-DMF_NO_ASM",), marks=pytest.mark.slow),
    ],
)
def test_equals_the_reference(core: str, flags: tuple[str, ...]) -> None:
    if core != "host":
        need_tools(*CROSS_TOOLS)
    graph = merge([*map(as_float16, PRODUCTS.values()), *OTHERS.values()])
    program = compile_graph(graph, load(core, *flags))
    ending = "__c" if core == "host" else "__mve"
    assert all(ending in layer.kernel.name for layer in program.layers if layer.node.op.name != "mean")
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 5))
    assert result.exact, result.differences
