"""Elementwise comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Quant, Tensor, TensorType
from microfold.ops.elementwise.binary_rule import broadcast_shape
from microfold.ops.elementwise.unary_rule import require_per_tensor

RELATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
LEFT_SHIFT = 8  # left shift of int8 operands before they are scaled

_DTYPES = (DType.BOOL, DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32)


@register
class Compare(Op, frozen=True):
    """``first relation second`` as bool, broadcast as in numpy; int8 operands in real units of 1/256.

    int16 operands must have the same quantisation, because LiteRT's relations contradict each other
    otherwise.
    """

    name: ClassVar[str] = "compare"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST
    takes_infinities: ClassVar[bool] = True

    relation: str

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        require(
            self.relation in RELATIONS,
            f"compare: the relation must be one of {', '.join(RELATIONS)}; it is {self.relation!r}",
        )
        shape = broadcast_shape("compare", first, second)
        require(
            first.dtype is second.dtype and first.dtype in _DTYPES,
            f"compare: {first.dtype.value} with {second.dtype.value} is not supported",
        )
        require(
            first.dtype is not DType.INT16 or first.element == second.element,
            f"compare: int16 operands must be quantised alike; they are {first.quant} and {second.quant}",
        )
        if first.dtype is DType.INT8:
            require_per_tensor("compare", first=first, second=second)
            for quant in (first.quant, second.quant):
                assert quant is not None
                self.multiplier(quant)  # raises an error if there is no multiplier
        return TensorType(DType.BOOL, shape)

    def multiplier(self, quant: Quant) -> Multiplier:
        """Return the multiplier of the scale itself. The reference asserts that it is less than 1."""
        return numerics.effective_multiplier([quant.scale], limit=1)

    def reference(self, first: Tensor, second: Tensor) -> Array:
        relation = RELATIONS[self.relation]
        if first.type.dtype is not DType.INT8:
            return relation(first.data, second.data)
        return relation(self.scaled(first), self.scaled(second))

    def scaled(self, x: Tensor) -> Array:
        """Return an int8 operand on the scale of the comparison."""
        assert x.type.quant is not None
        centred = (x.data.astype(np.int32) - x.type.quant.zero_point) << LEFT_SHIFT
        return numerics.multiply_by_quantized_multiplier(centred, *self.multiplier(x.type.quant))
