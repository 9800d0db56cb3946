"""Functions of two plain numbers: all pairs of int8, and edges of the wider types."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.bitwise_xor import BitwiseXor
from microfold.ops.elementwise.floor_div import FloorDiv
from microfold.ops.elementwise.floor_mod import FloorMod
from microfold.ops.elementwise.plain_binary import PlainBinary, plain_binary_operators
from microfold.ops.elementwise.pow import Pow
from microfold.ops.elementwise.right_shift import RightShift
from microfold.ops.elementwise.trunc_div import TruncDiv
from microfold.verification import verify
from tests.kernels.graphs import one_node_graph
from tests.kernels.random_networks import merge

EDGES = (0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 100)
REALS = (0.0, 0.5, 1.0, 1.5, 3.0, 0.1, 7.0, 2.0**-20, 8388607.0, 16777213.0)

# In the integers of Python, which have no bounds; None: no meaning of its own.
MEANING: dict[type[PlainBinary], Callable[[int, int], int]] = {
    BitwiseXor: operator.xor,
    FloorDiv: lambda a, b: a // b if b else 0,
    FloorMod: lambda a, b: a % b if b else 0,
    Pow: lambda a, b: pow(a, max(b, 0), 2**32),
    TruncDiv: lambda a, b: (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0,
}
TYPES = [(op, dtype) for op in plain_binary_operators() for dtype in op.dtypes]


def operands(dtype: DType) -> Array:
    """All of int8, and those of the wider types at which something may happen."""
    if dtype is DType.INT8:
        return np.arange(-128, 128).astype(np.int8)
    if dtype.is_float:
        return np.array([*REALS, *(-x for x in REALS)], np.float32)
    low, high = dtype.range
    near = [n for edge in EDGES for n in (edge, -edge, low + edge, high - edge)]
    return np.unique(np.array([n for n in near if low <= n <= high], dtype.numpy))


def outer(op: type[PlainBinary], dtype: DType) -> Graph:
    """Of each pair of operands."""
    count = len(operands(dtype))
    shapes = ((count, 1), (1, count))
    values = [
        Value(f"{op.name}_{dtype.value}_{i}", TensorType(dtype, shape)) for i, shape in enumerate(shapes)
    ]
    return one_node_graph(op(ElementType(dtype)), values, {})


@pytest.mark.parametrize(
    ("op", "dtype"), [pair for pair in TYPES if pair[0] in MEANING and not pair[1].is_float]
)
def test_integers_mean_what_pythons_do(op: type[PlainBinary], dtype: DType) -> None:
    x = operands(dtype)[:: 3 if dtype is DType.INT8 else 1]
    first, second = (Tensor(TensorType(dtype, part.shape), part) for part in (x[:, None], x[None]))
    (result,) = op(ElementType(dtype)).evaluate([first, second])
    low, count = dtype.range[0], 2 ** (8 * dtype.itemsize)
    for row, a in zip(result.data.tolist(), x.tolist(), strict=True):
        wanted = [MEANING[op](a, b) for b in x.tolist()]
        assert row == [(n - low) % count + low for n in wanted]


def test_shifts_keep_the_sign() -> None:
    element = ElementType(DType.INT16)
    first, second = np.array([-300, 300, -1], np.int16), np.array([[-1], [0], [3], [15], [99]], np.int16)
    tensors = [Tensor(TensorType(DType.INT16, x.shape), x) for x in (first, second)]
    (result,) = RightShift(element).evaluate(tensors)
    given = [[-300, 300, -1], [-300, 300, -1], [-38, 37, -1], [-1, 0, -1], [-1, 0, -1]]
    assert result.data.tolist() == given


def test_a_quotient_does_not_round_up_to_an_integer() -> None:
    """In float32, the first quotient is 1."""
    a, b = np.array([16777213.0, -1.0], np.float32), np.array([16777214.0, 3.0], np.float32)
    tensors = [Tensor(TensorType(DType.FLOAT32, (2,)), x) for x in (a, b)]
    (result,) = FloorDiv(ElementType(DType.FLOAT32)).evaluate(tensors)
    assert result.data.tolist() == [0.0, -1.0]


@pytest.mark.slow
def test_all_pairs() -> None:
    """The C of all types, in one program."""
    graph = merge([outer(op, dtype) for op, dtype in TYPES])
    call = [operands(v.type.dtype).reshape(v.type.shape) for v in graph.inputs]
    result = verify.verify(compile_graph(graph, target.load("host")), [call])
    assert result.exact, result.differences
