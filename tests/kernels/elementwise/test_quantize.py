"""float32 to integers: the nearest one, of all numbers around halves, of the largest, and of none."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.verification.verify import verify
from tests.needs import CROSS_TOOLS, need_tools

ELEMENTS = [
    ElementType(dtype, Quant.per_tensor(scale, zero_point))
    for dtype, zero_point in ((DType.INT8, -7), (DType.INT8, 127), (DType.UINT8, 200), (DType.INT16, 0))
    for scale in (0.05, 1.0, 3e-18, 7e17)
]


def numbers(scale: float) -> Array:
    """Halves of steps, their neighbours, and what is at the ends of float32."""
    halves = (np.arange(-600, 601) * 0.5 * scale).astype(np.float32)
    beside = [np.nextafter(halves, np.float32(np.copysign(np.inf, sign))) for sign in (-1, 1)]
    ends = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, -1e-45, 0.0, -0.0], np.float32)
    return np.concatenate([halves, *beside, ends]).astype(np.float32)


@pytest.mark.parametrize("core", ["host", "cortex-m0plus", "cortex-m4"])
def test_every_half(core: str) -> None:
    need_tools(*(CROSS_TOOLS if core != "host" else ()))
    inputs = [Value(f"x{i}", TensorType(DType.FLOAT32, numbers(1).shape)) for i, _ in enumerate(ELEMENTS)]
    nodes = tuple(
        make_node(Quantize(element), [x], [f"y{i}"])
        for i, (x, element) in enumerate(zip(inputs, ELEMENTS, strict=True))
    )
    outputs = tuple(node.output for node in nodes)
    program = compile_graph(Graph("net", tuple(inputs), outputs, nodes, {}), target.load(core))
    assert {layer.kernel.name for layer in program.layers} == {"f32_quantize__c"}
    call = [numbers(element.quant.scale) for element in ELEMENTS if element.quant is not None]
    result = verify(program, [call])
    assert result.exact, result.first_difference
