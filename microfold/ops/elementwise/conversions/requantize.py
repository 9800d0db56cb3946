"""Change of quantisation."""

from __future__ import annotations

from typing import ClassVar

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType

_DTYPES = {
    DType.INT8: (DType.INT8, DType.UINT8, DType.INT16, DType.INT32),
    DType.UINT8: (DType.INT8, DType.UINT8, DType.INT16),
    DType.INT16: (DType.INT8, DType.INT16, DType.INT32),
    DType.INT32: (DType.INT8, DType.INT16),
}


@register
class Requantize(Op, frozen=True):
    """Conversion of real values to other integers: ``(x - zero_in) * scale_in / scale_out + zero_out``."""

    name: ClassVar[str] = "requantize"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE
    any_zero_point: ClassVar[bool] = True

    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        require(
            self.out.dtype in _DTYPES.get(x.dtype, ()),
            f"requantize: {x.dtype.value} to {self.out.dtype.value} is not supported",
        )
        for what, quant in (("input", x.quant), ("output", self.out.quant)):
            require(
                quant is not None and quant.axis is None,
                f"requantize: the {what} must have one scale; it has {quant}",
            )
        assert x.quant is not None
        self.multiplier(x.quant)  # raises an error if there is no multiplier
        return x.with_element(self.out)

    def multiplier(self, x: Quant) -> Multiplier:
        """Return the multiplier of ``scale_in / scale_out``, computed in double."""
        assert self.out.quant is not None
        return numerics.effective_multiplier([x.scale], self.out.quant.scale)

    def reference(self, x: Tensor) -> Array:
        assert x.type.quant is not None
        return numerics.requantize(x.data, x.type.quant.zero_point, self.multiplier(x.type.quant), self.out)
