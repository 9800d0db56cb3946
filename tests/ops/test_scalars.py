"""Operators that move elements, on values without axes."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.ir.op import Op
from microfold.ir.types import DType, Tensor, TensorType
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose


@pytest.mark.parametrize("op", [Transpose(()), Pad((), 0.0), StridedSlice((), (), ()), BroadcastTo(())])
def test_scalar_stays_a_scalar(op: Op) -> None:
    (result,) = op.evaluate([Tensor(TensorType(DType.FLOAT32, ()), np.array(3, np.float32))])
    assert result.data.shape == ()
    assert result.data == 3
