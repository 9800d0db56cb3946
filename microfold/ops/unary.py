"""Elementwise mathematical functions of one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops import lookup
from microfold.ops.elementwise import check_unary

Function = Callable[[Array], Array]


def _elu(x: Array) -> Array:
    return np.where(x < 0, np.expm1(np.minimum(x, 0)), x)


def _erf(x: Array) -> Array:
    import math

    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _gelu(x: Array) -> Array:
    kind = x.dtype.type
    return (kind(0.5) * x * (kind(1) + _erf(x * kind(0.7071067811865476)).astype(kind))).astype(kind)


def _gelu_tanh(x: Array) -> Array:
    kind = x.dtype.type
    inner = kind(0.7978845608028654) * (x + kind(0.044715) * x * x * x)
    return kind(0.5) * x * (kind(1) + np.tanh(inner))


FUNCTIONS: dict[str, Function] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": np.cos,
    "elu": _elu,
    "exp": np.exp,
    "floor": np.floor,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "log": np.log,
    "neg": np.negative,
    "round": np.rint,
    "rsqrt": lambda x: (x.dtype.type(1) / np.sqrt(x)).astype(x.dtype),
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
}


@register
@dataclass(frozen=True)
class Unary(Op):
    """``function(x)`` in float32; int8 by a table, int16 by an interpolated table, see `microfold.ops.lookup`."""

    name: ClassVar[str] = "unary"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE

    function: str
    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        require(
            self.function in FUNCTIONS,
            f"unary: function must be one of {', '.join(FUNCTIONS)}; it is {self.function!r}",
        )
        return check_unary(f"unary {self.function}", x, self.out)

    def reference(self, x: Tensor) -> Array:
        function = FUNCTIONS[self.function]
        if x.type.dtype.is_float:
            with np.errstate(all="ignore"):
                return function(x.data).astype(np.float32)
        if x.type.dtype is DType.INT8:
            table = lookup.int8_table(function, x.type.element, self.out)
            return table[x.data.astype(np.int32) + 128]
        return lookup.int16_lookup(x.data, self.int16_table(x.type.element))

    def int16_table(self, x: ElementType) -> Array:
        """The interpolated table of the int16 form, int16 [513]."""
        assert x.quant is not None and self.out.quant is not None
        source, target = np.float32(x.quant.scale), np.float32(self.out.quant.scale)
        with np.errstate(all="ignore"):
            return lookup.int16_table(
                FUNCTIONS[self.function],
                (source * np.float32(-32768), source * np.float32(32767)),
                (target * np.float32(-32768), target * np.float32(32767)),
            )
