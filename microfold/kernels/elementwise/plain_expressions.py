"""C expressions of two plain numbers for portable kernels, by operator and element type."""

from __future__ import annotations

from microfold.ir.types import DType

_NARROW = (DType.INT8, DType.INT16)


def _integers(expression: str, *dtypes: DType) -> dict[DType, str]:
    """Return an int32 expression for int32 and, with a conversion of its result, for narrower types."""
    narrow = {dtype: f"({dtype.value}_t)({expression})" for dtype in dtypes}
    return narrow | {DType.INT32: expression}


# Expressions of the elements a and b, by the name of a `PlainBinary` operator.
PLAIN: dict[str, dict[DType, str]] = {
    "bitwise_xor": _integers("a ^ b", *_NARROW, DType.UINT8) | {DType.UINT32: "a ^ b"},
    "floor_div": _integers("mf_floor_div(a, b)", *_NARROW) | {DType.FLOAT32: "mf_floor_div_float(a, b)"},
    "floor_mod": _integers("mf_floor_mod(a, b)", *_NARROW)
    | {DType.INT64: "mf_floor_mod_wide(a, b)", DType.FLOAT32: "mf_floor_mod_float(a, b)"},
    "pow": {DType.INT32: "mf_power(a, b)", DType.FLOAT32: "powf(a, b)"},
    "right_shift": {
        dtype: f"({dtype.value}_t)(a >> mf_clamp(b, 0, {8 * dtype.itemsize - 1}))"
        for dtype in (*_NARROW, DType.UINT8, DType.INT32)
    }
    | {DType.UINT32: "a >> (b < 31u ? b : 31u)"},
    "trunc_div": {DType.INT32: "mf_trunc_div(a, b)"},
}
