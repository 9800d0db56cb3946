"""Carried rows, one by one: what moves, what lies where, and when it needs its bytes."""

from __future__ import annotations

import pytest

from microfold.ir.node import Value
from microfold.ir.types import DType, Quant, TensorType
from microfold.plan.stream.operations import MoveRows, WindowAddress
from microfold.plan.stream.staged_line_buffers import StagedLineBuffer

VALUE = Value("image", TensorType(DType.INT8, (1, 9, 2, 5), Quant.per_tensor(0.1, 0)))
PITCH = 10


def at_home(rows: int) -> WindowAddress:
    return WindowAddress(VALUE, rows * PITCH)


def on_stage(rows: int) -> WindowAddress:
    return WindowAddress(VALUE, rows * PITCH, newest=True)


def test_rows_go_to_the_stage_to_be_read_and_what_stays_comes_home() -> None:
    """A window of 3 rows, each 1 further: 2 rows stay."""
    rows = StagedLineBuffer(VALUE, PITCH, 0)
    assert rows.write(0, 1, 0, read_next=False) == ([], at_home(0))
    assert rows.write(1, 2, 0, read_next=False) == ([], at_home(1))
    rows.mark(0)
    assert (rows.times, rows.newest_times) == (0b1, 0b0)
    # Both places are in use while rows move, the stage alone when a call reads them.
    assert rows.write(2, 3, 0, read_next=True) == ([MoveRows(at_home(0), on_stage(0), 20)], on_stage(2))
    rows.mark(1)
    rows.mark(2)
    assert (rows.times, rows.newest_times) == (0b11, 0b110)
    assert rows.spots(0, 3) == on_stage(0)
    rows.forget(1)
    assert rows.keep(1) == [MoveRows(on_stage(1), at_home(0), 20)]
    rows.mark(3)
    rows.mark(4)
    assert (rows.times, rows.newest_times) == (0b11011, 0b1110)
    assert rows.spots(2, 3) == at_home(1)
    assert (rows.size, rows.width) == (2 * PITCH, 3)


def test_rows_that_are_not_needed_leave_before_others_come_behind_them() -> None:
    rows = StagedLineBuffer(VALUE, PITCH, 0)
    rows.write(0, 3, 0, read_next=False)
    assert rows.write(3, 4, 2, read_next=False) == ([MoveRows(at_home(2), at_home(0), PITCH)], at_home(1))
    assert rows.spots(2, 4) == at_home(0)
    rows.forget(4)
    assert rows.write(4, 5, 4, read_next=True) == ([], on_stage(0))
    rows.forget(5)
    assert rows.keep(5) == []
    assert not rows.keeps
    assert not rows.is_apart


def test_rows_that_are_not_there_are_refused() -> None:
    rows = StagedLineBuffer(VALUE, PITCH, -1)
    with pytest.raises(AssertionError, match="after row -1"):
        rows.write(0, 1, 0, read_next=True)
    rows.write(-1, 0, -1, read_next=True)
    with pytest.raises(AssertionError, match="not in a buffer"):
        rows.spots(-1, 1)
    with pytest.raises(AssertionError, match="on its stage"):
        rows.write(0, 1, -1, read_next=True)
    rows.keep(0)
    with pytest.raises(AssertionError, match="not in a buffer"):
        rows.spots(-1, 0)
