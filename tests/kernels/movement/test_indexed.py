"""Slices at computed positions, whatever the indices are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.abs import Abs
from microfold.ops.movement.bitcast import Bitcast
from microfold.ops.movement.dynamic_slice import DynamicSlice
from microfold.ops.movement.dynamic_update_slice import DynamicUpdateSlice
from microfold.ops.movement.gather_nd import GatherNd
from microfold.ops.movement.scatter_nd import ScatterNd
from tests.kernels.graphs import float_input, one_node_graph
from tests.kernels.portable import check, check_all

INDICES = (DType.INT16, DType.INT32, DType.INT64)
ELEMENTS = (DType.BOOL, DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32)


def value(name: str, dtype: DType, *shape: int) -> Value:
    return Value(name, TensorType(dtype, shape))


def evaluate(op: Op, *arrays: Array) -> Array:
    tensors = [Tensor(TensorType(DType(a.dtype.name), a.shape), a) for a in arrays]
    (result,) = op.evaluate(tensors)
    return result.data


def test_positions_out_of_range() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    indices = np.array([[-1, 1], [5, 9], [0, 2]], np.int32)
    assert evaluate(GatherNd(), x, indices).tolist() == [1, 5, 2]
    assert evaluate(GatherNd(), x, indices[:, :1]).tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    updates = np.array([7, 8, 9], np.int32)
    assert evaluate(ScatterNd((2, 3)), indices, updates).tolist() == [[0, 0, 9], [0, 0, 0]]


def test_slices_for_one_position_add_up() -> None:
    indices = np.array([[1], [1], [0]], np.int32)
    sums = evaluate(ScatterNd((2,)), indices, np.array([100, 100, 1], np.int8))
    assert sums.tolist() == [1, -56]
    assert evaluate(ScatterNd((3,)), indices, np.array([True, False, False])).tolist() == [False, True, False]


def test_a_start_is_moved_so_that_the_update_fits() -> None:
    x, update = np.zeros((3, 3), np.int8), np.ones((2, 1), np.int8)
    result = evaluate(DynamicUpdateSlice(), x, update, np.array([9, -4], np.int64))
    assert result.tolist() == [[0, 0, 0], [1, 0, 0], [1, 0, 0]]


def test_gathered_and_scattered() -> None:
    """Random indices, few of which are in range; of each type and depth."""
    cases: dict[str, Graph] = {}
    shape = (3, 4, 5)
    kinds = zip(ELEMENTS, itertools.cycle(INDICES), itertools.cycle((1, 2, 3, 3, 2)), strict=False)
    for dtype, index, depth in kinds:
        x, indices = value("x", dtype, *shape), value("i", index, 2, 3, depth)
        cases[f"gather {dtype} {depth}"] = one_node_graph(GatherNd(), [x, indices], {})
        if dtype is not DType.INT16:
            updates = value("u", dtype, 2, 3, *shape[depth:])
            cases[f"scatter {dtype} {depth}"] = one_node_graph(ScatterNd(shape), [indices, updates], {})
    check_all(cases)


def test_gathered_and_scattered_in_range() -> None:
    """All of the indices are, and some are there twice."""
    rng = np.random.default_rng(0)
    array = np.stack([rng.integers(0, n, 9) for n in (3, 2)], axis=-1).astype(np.int32)
    indices = value("i", DType.INT32, 9, 2)
    gather = one_node_graph(GatherNd(), [value("x", DType.INT8, 3, 2, 5)], {indices: array})
    # The indices come first.
    updates = value("u", DType.FLOAT32, 9, 4)
    node = make_node(ScatterNd((3, 2, 4)), [indices, updates], ["y"])
    scatter = Graph("net", (updates,), node.outputs, (node,), {indices: array})
    check_all({"gather": gather, "scatter": scatter})


def test_updates() -> None:
    shape = (2, 3, 4, 5)
    parts = [(1, 1, 1, 1), (2, 3, 4, 5), (2, 2, 4, 5), (1, 3, 2, 5), (2, 1, 3, 2)]
    check_all(
        {
            f"{update} of {dtype}": one_node_graph(
                DynamicUpdateSlice(),
                [value("x", dtype, *shape), value("u", dtype, *update), value("s", index, 4)],
                {},
            )
            for update, dtype, index in zip(
                parts, itertools.cycle(ELEMENTS), itertools.cycle((DType.INT32, DType.INT64)), strict=False
            )
        }
    )


def test_slices() -> None:
    shape = (2, 3, 4, 5)
    parts = [(1, 1, 1, 1), (2, 3, 4, 5), (2, 2, 4, 5), (1, 3, 2, 5), (2, 1, 3, 2)]
    cases: dict[str, Graph] = {}
    for part, dtype, index in zip(
        parts, itertools.cycle(ELEMENTS), itertools.cycle((DType.INT32, DType.INT64)), strict=False
    ):
        operands = [value("x", dtype, *shape), value("s", index, 4)]
        cases[f"{part} of {dtype}"] = one_node_graph(DynamicSlice(part), operands, {})
    check_all(cases)


def test_a_start_is_moved_so_that_the_slice_is_there() -> None:
    x = np.arange(9, dtype=np.int8).reshape(3, 3)
    assert evaluate(DynamicSlice((2, 1)), x, np.array([9, -4], np.int64)).tolist() == [[3], [6]]
    assert evaluate(DynamicSlice((1, 2)), x, np.array([0, 1], np.int32)).tolist() == [[1, 2]]


def test_an_update_in_place() -> None:
    """What dies is not copied."""
    x, update, start = float_input("x", (64, 8)), float_input("u", (1, 8)), value("s", DType.INT32, 2)
    first = make_node(Abs(ElementType(DType.FLOAT32)), [x], ["a"])
    second = make_node(DynamicUpdateSlice(), [first.output, update, start], ["y"])
    graph = Graph("net", (x, update, start), second.outputs, (first, second))
    program = check(graph)
    assert program.arena.size < 2 * x.type.nbytes + 128


def test_bytes_as_other_elements() -> None:
    pairs = (
        (DType.FLOAT32, DType.INT32, (2, 3)),
        (DType.INT32, DType.INT8, (2, 3)),
        (DType.INT8, DType.INT32, (3, 4)),
        (DType.INT16, DType.INT64, (4,)),
    )
    check_all(
        {
            f"{x} to {out}": one_node_graph(Bitcast(ElementType(out)), [value("x", x, *shape)], {})
            for x, out, shape in pairs
        }
    )
    assert evaluate(Bitcast(ElementType(DType.INT16)), np.array([0x12345678], np.int32)).tolist() == [
        [0x5678, 0x1234]
    ]


@pytest.mark.parametrize(
    ("op", "operands", "rule"),
    [
        (GatherNd(), [(DType.INT8, (2, 3)), (DType.FLOAT32, (2,))], "indices must be int16, int32 or int64"),
        (GatherNd(), [(DType.INT8, (2, 3)), (DType.INT32, (2, 3))], "must have 1 to 2 elements"),
        (ScatterNd((2, 3)), [(DType.INT32, (4, 1)), (DType.INT8, (4, 2))], r"updates must be \[4, 3\]"),
        (
            DynamicUpdateSlice(),
            [(DType.INT8, (2, 3)), (DType.INT8, (3, 3)), (DType.INT32, (2,))],
            "the update must fit",
        ),
        (
            DynamicUpdateSlice(),
            [(DType.INT8, (2, 3)), (DType.INT8, (1, 1)), (DType.INT32, (3,))],
            r"the start must be int32 or int64 \[2\]",
        ),
        (DynamicSlice((3, 3)), [(DType.INT8, (2, 3)), (DType.INT32, (2,))], "the slice must fit"),
        (
            DynamicSlice((1, 3)),
            [(DType.INT8, (2, 3)), (DType.INT32, (3,))],
            "the start must be int32 or int64",
        ),
        (Bitcast(ElementType(DType.INT32)), [(DType.INT8, (2, 3))], "must have the 4 elements of one int32"),
        (Bitcast(ElementType(DType.BOOL)), [(DType.INT8, (2, 3))], "bool is not supported"),
    ],
)
def test_refused(op: Op, operands: list[tuple[DType, tuple[int, ...]]], rule: str) -> None:
    with pytest.raises(TypeRuleError, match=rule):
        op.infer_all([TensorType(dtype, shape) for dtype, shape in operands])


def test_unlike_scales_are_refused() -> None:
    narrow, wide = (TensorType(DType.INT8, (2,), Quant.per_tensor(scale)) for scale in (0.1, 0.2))
    with pytest.raises(TypeRuleError, match="x and update must have one element type"):
        DynamicUpdateSlice().infer_all([narrow, wide, TensorType(DType.INT32, (1,))])
