"""Columns of every operator that has a rule: side by side, they are its result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from microfold.ir.op import REGISTRY, Op, Pattern
from microfold.ir.types import DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.columns import COLUMNS, RULES, ColumnPart, Columns, column_part
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.add import Add
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from tests.ops.drawn_operators import OPERATORS, draw_part

EXAMPLES = 20
F32 = ElementType(DType.FLOAT32)
HAVE_RULES = sorted(
    name
    for name in OPERATORS
    if issubclass(REGISTRY[name], tuple(RULES))
    or REGISTRY[name].pattern in (Pattern.ELEMENTWISE, Pattern.BROADCAST)
)


@pytest.mark.parametrize("name", HAVE_RULES)
def test_columns_of_the_result(name: str) -> None:
    """``reference(x)[:, :, c0:c1] == part(columns of x)``."""
    parts = 0

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        nonlocal parts
        op, operands, whole, (start, stop) = draw_part(name, data, COLUMNS)
        found = column_part(op, [operand.type for operand in operands], (start, stop))
        if isinstance(found, ColumnPart):
            parts += 1
            taken = [_taken(*pair) for pair in zip(operands, found.operands, strict=True)]
            (columns,) = found.op.evaluate(taken)
            assert columns.type.element == whole.type.element
            np.testing.assert_array_equal(columns.data, whole.data[:, :, start:stop])

    check()
    assert parts >= EXAMPLES // 4


def _taken(operand: Tensor, columns: Columns | None) -> Tensor:
    if columns is None:
        return operand
    data = operand.data[..., slice(*columns), :]
    return Tensor(operand.type.with_shape(data.shape), data)


def _image(*shape: int) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


CONV = Conv2D((1, 2), (2, 1), ((3, 4), (1, 2)), F32)
CONVOLVED: list[TensorType | None] = [_image(1, 9, 8, 2), _image(3, 3, 3, 2), None]
MAX = MaxPool2D((2, 2), (2, 2), ((0, 0), (0, 1)))
AVERAGE = AveragePool2D((3, 3), (1, 1), ((1, 1), (1, 1)))
PAD = Pad(((0, 0), (2, 1), (1, 1), (0, 0)), 7.0)


@pytest.mark.parametrize(
    ("op", "operands", "columns", "expected", "padding"),
    [
        (CONV, CONVOLVED, (1, 3), (1, 6), (0, 0)),
        (CONV, CONVOLVED, (0, 1), (0, 2), (1, 0)),
        (CONV, CONVOLVED, (4, 5), (7, 8), (0, 2)),
        (CONV, CONVOLVED, (0, 5), (0, 8), (1, 2)),
        (MAX, [_image(1, 4, 5, 1)], (2, 3), (4, 5), (0, 1)),
        (AVERAGE, [_image(1, 4, 5, 1)], (0, 2), (0, 3), (1, 0)),
    ],
)
def test_which_columns(
    op: Op, operands: list[TensorType | None], columns: Columns, expected: Columns, padding: Columns
) -> None:
    """No more than are needed, and padding at the image's edges alone; rows are those of the operator."""
    found = column_part(op, operands, columns)
    assert isinstance(found, ColumnPart)
    assert isinstance(found.op, Conv2D | MaxPool2D | AveragePool2D)
    assert isinstance(op, Conv2D | MaxPool2D | AveragePool2D)
    assert found.operands[0] == expected
    assert found.op.padding == (op.padding[0], padding)


def test_what_is_broadcast_over_columns_is_read_whole() -> None:
    found = column_part(Add(F32), [_image(1, 3, 9, 2), _image(1, 3, 1, 2)], (3, 8))
    assert isinstance(found, ColumnPart)
    assert found.operands == ((3, 8), None)


@pytest.mark.parametrize(
    ("op", "operands", "columns", "reason"),
    [
        (Concatenate(2), [_image(1, 4, 4, 2), _image(1, 4, 4, 2)], (0, 2), "concatenates along the columns"),
        (PAD, [_image(1, 4, 3, 1)], (4, 5), "only padding"),
        (
            Conv2D((1, 1), (1, 1), ((0, 0), (4, 0)), F32),
            [_image(1, 4, 4, 1), _image(1, 2, 2, 1)],
            (0, 2),
            "only padding",
        ),
        (StridedSlice((0, 0, 0, 0), (1, 2, 2, 1), (1, 1, 1, 1)), [_image(1, 4, 4, 1)], (0, 1), "no rule"),
        (Add(F32), [_image(2, 4, 4, 1), _image(2, 4, 4, 1)], (0, 1), "must be an image"),
        (Add(F32), [_image(4, 4), _image(4, 4)], (0, 1), "must be an image"),
        (
            Concatenate(3),
            [TensorType(DType.INT8, (1, 2, 2, 2), Quant((1.0, 2.0), (0, 0), 2))] * 2,
            (0, 1),
            "scales of an operand vary along its columns",
        ),
    ],
)
def test_refused(op: Op, operands: list[TensorType | None], columns: Columns, reason: str) -> None:
    found = column_part(op, operands, columns)
    assert isinstance(found, str)
    assert reason in found
