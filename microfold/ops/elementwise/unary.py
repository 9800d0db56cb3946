"""Elementwise mathematical functions of one value."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.rational_tanh import rational_tanh
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise import fast_math, lookup
from microfold.ops.elementwise.unary_rule import QUANTIZED, check_unary

Function = Callable[[Array], Array]


def _elu(x: Array) -> Array:
    return np.where(x < 0, np.expm1(np.minimum(x, 0)), x)


_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _gelu(x: Array) -> Array:
    scaled = x * np.float32(-math.sqrt(0.5))
    return np.float32(0.5) * x * _erfc(scaled.astype(np.float64)).astype(np.float32)


_GELU_FACTOR = np.float32(math.sqrt(2 / math.pi))


def _gelu_tanh(x: Array) -> Array:
    inner = _GELU_FACTOR * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (np.float32(1) + np.tanh(inner.astype(np.float64)).astype(np.float32))


def _gelu_rational_tanh(x: Array) -> Array:
    """Return GELU with LiteRT's tanh and its order of products.

    If ``1 + tanh`` cancels, the result depends on the last bits of both.
    """
    inner = _GELU_FACTOR * (x + np.float32(0.044715) * (x * x * x))
    return np.float32(0.5) * x * (np.float32(1) + rational_tanh(inner))


# Functions from float32 to float32.
FUNCTIONS: dict[str, Function] = {
    "ceil": np.ceil,
    "cos": lookup.rounded_once(np.cos),
    "elu": lookup.rounded_once(_elu),
    "exp": lookup.rounded_once(np.exp),
    "fast_exp": fast_math.exp,
    "fast_logistic": fast_math.logistic,
    "fast_tanh": fast_math.tanh,
    "floor": np.floor,
    "gelu": _gelu,
    "gelu_rational_tanh": _gelu_rational_tanh,
    "gelu_tanh": _gelu_tanh,
    "log": lookup.rounded_once(np.log),
    "neg": np.negative,
    "round": np.rint,
    "sign": np.sign,
    "sin": lookup.rounded_once(np.sin),
    "sqrt": np.sqrt,
    "square": np.square,
}
# Functions that have integer forms in the reference.
_QUANTIZED_FUNCTIONS = ("elu", "exp", "gelu", "gelu_tanh", "log", "sqrt")


@register
class Unary(Op, frozen=True):
    """``function(x)`` in float32. int8 uses a table, int16 an interpolated table, see `lookup`.

    ``sqrt`` uses no tables; its result is truncated. If ``log`` is undefined, the result is the lowest value.
    """

    name: ClassVar[str] = "unary"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE

    function: str
    out: ElementType

    @staticmethod
    def is_quantized(function: str) -> bool:
        """Return whether a function has integer forms."""
        return function in _QUANTIZED_FUNCTIONS

    def infer(self, x: TensorType) -> TensorType:
        require(
            self.function in FUNCTIONS,
            f"unary: function must be one of {', '.join(FUNCTIONS)}; it is {self.function!r}",
        )
        quantized = QUANTIZED if self.is_quantized(self.function) else ()
        result = check_unary(self.function, x, self.out, (*quantized, DType.FLOAT32))
        if not x.dtype.is_float:
            largest = _largest_result(self, x.element)
            require(
                largest < 1 << 31,
                f"{self.function}: results must be less than 2^31 steps of their scale; "
                f"they are up to {largest:g}",
            )
        return result

    def reference(self, x: Tensor) -> Array:
        with np.errstate(all="ignore"):
            if x.type.dtype.is_float:
                return FUNCTIONS[self.function](x.data).astype(np.float32)
            if self.function == "sqrt":
                return self._truncated_sqrt(x)
            if x.type.dtype is DType.INT8:
                table = lookup.int8_table(self.total_function(), x.type.element, self.out)
                return table[x.data.astype(np.int32) + 128]
            return lookup.int16_lookup(x.data, self.int16_table(x.type.element))

    def total_function(self) -> Function:
        """Return the function, extended to all inputs."""
        function = FUNCTIONS[self.function]
        if self.function != "log":
            return function
        assert self.out.quant is not None
        steps = self.out.dtype.range[0] - self.out.quant.zero_point
        lowest = np.float32(steps) * np.float32(self.out.quant.scale)
        return lambda x: np.where(x <= 0, lowest, function(np.where(x <= 0, np.float32(1), x)))

    def _truncated_sqrt(self, x: Tensor) -> Array:
        assert x.type.quant is not None
        assert self.out.quant is not None
        centred = np.maximum(x.data.astype(np.int32) - x.type.quant.zero_point, 0)
        real = np.sqrt(np.float32(x.type.quant.scale) * centred.astype(np.float32))
        result = np.trunc(real / np.float32(self.out.quant.scale)).astype(np.int64)
        return numerics.clamp(result + self.out.quant.zero_point, *self.out.dtype.range, self.out.dtype)

    def int16_table(self, x: ElementType) -> Array:
        """Return the interpolated table of the int16 form, int16 [513]."""
        assert x.quant is not None
        assert self.out.quant is not None
        source, target = np.float32(x.quant.scale), np.float32(self.out.quant.scale)
        return lookup.int16_table(
            self.total_function(),
            (source * np.float32(-32768), source * np.float32(32767)),
            (target * np.float32(-32768), target * np.float32(32767)),
        )


@cache
def _largest_result(op: Unary, x: ElementType) -> float:
    """Return the largest magnitude of a quantised result in steps of its scale, before it is clamped."""
    assert x.quant is not None
    assert op.out.quant is not None
    low, high = x.dtype.range
    inputs = np.linspace(low, high, 513 if x.dtype is DType.INT16 else high - low + 1)
    with np.errstate(all="ignore"):
        real = (np.float32(x.quant.scale) * (inputs - x.quant.zero_point)).astype(np.float32)
        results = op.total_function()(np.maximum(real, 0) if op.function == "sqrt" else real)
        inverse = np.float32(1) / np.float32(op.out.quant.scale)  # infinite if the scale is denormal
        return float(np.abs(results * inverse).max())
