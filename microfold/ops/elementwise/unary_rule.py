"""Type rules of elementwise operators with one operand."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.ir.op import require
from microfold.ir.types import DType, ElementType, TensorType

QUANTIZED = (DType.INT8, DType.INT16)


def require_per_tensor(op: str, **elements: ElementType | TensorType) -> None:
    """Raise `TypeRuleError` unless all elements are quantised with one scale per tensor."""
    for what, element in elements.items():
        quant = element.quant
        require(
            quant is not None and quant.axis is None,
            f"{op}: the {what} must be quantised with one scale per tensor; its quantisation is {quant}",
        )


def check_unary(
    op: str, x: TensorType, out: ElementType, dtypes: Sequence[DType] = (*QUANTIZED, DType.FLOAT32)
) -> TensorType:
    """Check equal element types, one of `dtypes`, with integers quantised per tensor; return the result's."""
    require(
        x.dtype is out.dtype,
        f"{op}: input and result must have one type; they are {x.dtype.value} and {out.dtype.value}",
    )
    require(
        x.dtype in dtypes,
        f"{op}: {x.dtype.value} is not supported; {', '.join(dtype.value for dtype in dtypes)} are",
    )
    if x.dtype in QUANTIZED:
        require_per_tensor(op, input=x, output=out)
    return x.with_element(out)
