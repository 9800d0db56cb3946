"""Bands of rows of every operator: put behind each other, they are its result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from microfold.ir.op import REGISTRY, Op, Pattern
from microfold.ir.types import DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.normalize.layer_norm import LayerNorm
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.cumsum import Cumsum
from microfold.ops.reduce.mean import Mean
from microfold.ops.reduce.reduce import ReduceMax
from microfold.ops.rows import REFUSED, ROWS, RULES, Band, OperandRows, Rows, band
from tests.ops.drawn_operators import OPERATORS, draw_part

EXAMPLES = 20
F32 = ElementType(DType.FLOAT32)


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_rows_of_the_result(name: str) -> None:
    """``reference(x)[r0:r1] == band(padded x)``."""
    bands = 0

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        nonlocal bands
        op, operands, whole, (start, stop) = draw_part(name, data, ROWS)
        found = band(op, [operand.type for operand in operands], (start, stop))
        if isinstance(found, Band):
            bands += 1
            (rows,) = found.op.evaluate([_part(*pair) for pair in zip(operands, found.operands, strict=True)])
            assert rows.type.element == whole.type.element
            np.testing.assert_array_equal(rows.data, whole.data[:, start:stop])

    check()
    assert bands >= EXAMPLES // 2


def _part(operand: Tensor, rows: OperandRows | None) -> Tensor:
    if rows is None:
        return operand
    return Tensor(rows.type(operand.type), rows.take(operand.data))


def test_every_operator_has_a_rule_or_a_reason() -> None:
    """An operator without pattern and rule is listed with its reason."""
    by_pattern = (Pattern.ELEMENTWISE, Pattern.BROADCAST)
    for name, op in REGISTRY.items():
        ruled = op.pattern in by_pattern or issubclass(op, tuple(RULES))
        refused = op.is_view or issubclass(op, tuple(REFUSED))
        assert ruled != refused, name
        assert ruled == (name in OPERATORS), name


def _image(*shape: int) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


CONV = Conv2D((2, 1), (1, 2), ((1, 2), (3, 4)), F32)
CONVOLVED: list[TensorType | None] = [_image(1, 8, 9, 2), _image(3, 3, 3, 2), None]
ALL_PADDING = Conv2D((1, 1), (1, 1), ((3, 0), (0, 0)), F32)
MAX = MaxPool2D((2, 2), (2, 2), ((0, 1), (0, 0)))
AVERAGE = AveragePool2D((3, 3), (1, 1), ((1, 1), (1, 1)))
# Its rows 2 y + k - 1 have a part of row y.
TRANSPOSED = TransposeConv2D((2, 2), (1, 1), (8, 8), F32)
PAD = Pad(((0, 0), (2, 1), (1, 1), (0, 0)), 7.0)
BACKWARDS = StridedSlice((0, 6, 0, 0), (1, 3, 3, 1), (1, -2, 1, 1))


@pytest.mark.parametrize(
    ("op", "operands", "rows", "expected"),
    [
        (CONV, CONVOLVED, (2, 4), OperandRows(3, 8)),
        (CONV, CONVOLVED, (0, 1), OperandRows(0, 2, above=1)),
        (CONV, CONVOLVED, (4, 5), OperandRows(7, 8, below=2)),
        (CONV, CONVOLVED, (0, 5), OperandRows(0, 8, above=1, below=2)),
        (ALL_PADDING, [_image(1, 4, 4, 1), _image(1, 2, 2, 1)], (0, 2), OperandRows(0, 0, above=3)),
        (MAX, [_image(1, 5, 4, 1)], (2, 3), OperandRows(4, 5, below=1, fill=-np.inf)),
        (AVERAGE, [_image(1, 5, 4, 1)], (0, 1), OperandRows(0, 2)),
        (AVERAGE, [_image(1, 5, 4, 1)], (1, 4), OperandRows(0, 5)),
        (TRANSPOSED, [_image(1, 4, 4, 1), _image(1, 3, 3, 1)], (2, 4), OperandRows(1, 3)),
        (TRANSPOSED, [_image(1, 4, 4, 1), _image(1, 3, 3, 1)], (7, 8), OperandRows(3, 4, below=1)),
        (ResizeNearestNeighbor((8, 3), False, False), [_image(1, 4, 3, 1)], (2, 6), OperandRows(1, 3)),
        (PAD, [_image(1, 4, 3, 1)], (1, 3), OperandRows(0, 1, above=1, fill=7.0)),
        (BACKWARDS, [_image(1, 8, 3, 1)], (1, 3), OperandRows(2, 5)),
        (Add(F32), [_image(9, 3, 1), _image(1, 9, 3, 2)], (3, 8), OperandRows(3, 8)),
    ],
)
def test_which_rows(op: Op, operands: list[TensorType | None], rows: Rows, expected: OperandRows) -> None:
    """No more than are needed: memory is planned with them."""
    found = band(op, operands, rows)
    assert isinstance(found, Band)
    assert found.operands[0] == expected


def test_what_is_broadcast_over_rows_is_read_whole() -> None:
    found = band(Add(F32), [_image(1, 9, 3, 2), _image(1, 3, 2)], (3, 8))
    assert isinstance(found, Band)
    assert found.operands == (OperandRows(3, 8), None)


def test_bands_of_equal_size_are_one_operator() -> None:
    """Padding is in the operand: bands at the edges are no other functions."""
    bands = [band(CONV, CONVOLVED, (row, row + 1)) for row in range(5)]
    expected = replace(CONV, padding=((0, 0), CONV.padding[1]))
    assert {found.op if isinstance(found, Band) else found for found in bands} == {expected}


SCALED_ROWS = TensorType(DType.INT8, (1, 4, 2, 2), Quant((1.0, 2.0, 3.0, 4.0), (0, 0, 0, 0), 1))


@pytest.mark.parametrize(
    ("op", "operands", "reason"),
    [
        (CONV, [_image(2, 8, 9, 2), _image(3, 3, 3, 2)], "rows must be those of one image; its result has 2"),
        (Add(F32), [_image(4, 4), _image(4, 4)], "its result must be an image"),
        (Mean((2, 3), False, F32), [_image(1, 4, 8, 4)], "its result must be an image"),
        (ReduceMax((0, 1), True), [_image(1, 4, 8, 4)], "it reduces all rows together"),
        (Concatenate(1), [_image(1, 2, 2, 1), _image(1, 3, 2, 1)], "it concatenates along the rows"),
        (Transpose((0, 2, 1, 3)), [_image(1, 4, 4, 2)], "its rows come from another axis"),
        (Cumsum(1, False, False), [_image(1, 4, 4, 2)], "it computes along the rows"),
        (LayerNorm(1, 0.1), [_image(1, 4, 4, 2), *2 * [_image(4, 4, 2)]], "it computes along the rows"),
        (Dequantize(), [SCALED_ROWS], "scales of an operand vary along its rows"),
        (StridedSlice((1, 0, 0, 0), (1, 4, 3, 1), (1,) * 4), [_image(2, 4, 3, 1)], "it reads float32[2,4"),
        (AVERAGE, [_image(1, 4, 4, 1)], "average fewer rows"),
        (ResizeNearestNeighbor((2, 3), False, False), [_image(1, 4, 3, 1)], "resized separately"),
        (replace(CONV, layout="NCHW"), [_image(1, 2, 8, 9), _image(3, 3, 3, 2)], "its layout is NCHW"),
        (BatchMatmul(False, False, F32), [_image(1, 2, 4, 4), _image(1, 2, 4, 4)], "not compute images"),
    ],
)
def test_reasons(op: Op, operands: list[TensorType], reason: str) -> None:
    found = band(op, operands, (0, min(2, op.infer_all(operands)[0].shape[1])))
    assert isinstance(found, str)
    assert reason in found


def test_rows_must_be_there() -> None:
    with pytest.raises(ValueError, match=r"rows must be in \[0, 8\); they are 7 to 9"):
        band(MaxPool2D((1, 1), (1, 1), ((0, 0), (0, 0))), [_image(1, 8, 8, 1)], (7, 9))
