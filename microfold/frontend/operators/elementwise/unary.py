"""Importers of elementwise operators on one value: RELU, LOGISTIC, ABS …"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import tflite

from microfold.errors import DeclarationError
from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType, Quant
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.hard_swish import HardSwish
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.lookup import Lookup
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import FUNCTIONS, Unary

_RELUS = {
    "RELU": (0.0, math.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}


@imports(*_RELUS)
def relu(context: OperatorContext) -> None:
    x, out = context.input(0), context.element()
    minimum, maximum = _RELUS[context.raw.name]
    context.check_clip(minimum, maximum, out)
    op = Clip(minimum, maximum) if x.type.element == out else Relu(minimum, maximum, out)
    context.finish(*context.emit(op, x))


@imports("LEAKY_RELU")
def leaky_relu(context: OperatorContext) -> None:
    alpha = float(context.required_options("LeakyReluOptions").Alpha())
    context.finish(*context.emit(LeakyRelu(alpha, context.element()), context.input(0)))


@imports("LOGISTIC")
def logistic(context: OperatorContext) -> None:
    context.finish(*context.emit(Logistic(context.element()), context.input(0)))


@imports("TANH")
def tanh(context: OperatorContext) -> None:
    context.finish(*context.emit(Tanh(context.element()), context.input(0)))


@imports("HARD_SWISH")
def hard_swish(context: OperatorContext) -> None:
    context.finish(*context.emit(HardSwish(context.element()), context.input(0)))


# Functions that no operator of the same name without options imports: other importers or passes make them.
_MADE_ELSEWHERE = frozenset({
    "fast_exp", "fast_logistic", "fast_tanh", "gelu", "gelu_rational_tanh", "gelu_tanh", "neg", "sign"
})  # fmt: skip


def operators_of(functions: Collection[str]) -> list[str]:
    """Return the operators of the file format that the functions of `ops.elementwise.unary` implement.

    Raises:
        DeclarationError: the format has no operator with the name of a function: no model could use it.
    """
    names = [name.upper() for name in functions if name not in _MADE_ELSEWHERE]
    unknown = [name for name in names if not hasattr(tflite.BuiltinOperator, name)]
    if unknown:
        raise DeclarationError(
            "a function in ops/elementwise/unary.py must have the name of an operator of the file format; "
            f"the format has no {', '.join(unknown)}: correct the name, or write the importer or pass that "
            "makes the function and add it to _MADE_ELSEWHERE in frontend/operators/elementwise/unary.py"
        )
    return names


@imports(*operators_of(FUNCTIONS))
def unary(context: OperatorContext) -> None:
    context.finish(*context.emit(Unary(context.raw.name.lower(), context.element()), context.input(0)))


@imports("ABS")
def abs_(context: OperatorContext) -> None:
    """Import ABS; for int32 as max(x, -x), which keeps the lowest integer unchanged."""
    x = context.input(0)
    if x.type.dtype is DType.INT32:
        context.finish(*context.emit(Maximum(), x, _negative(context, x, f"{context.name()}_negative")))
    else:
        context.finish(*context.emit(Abs(context.element()), x))


@imports("NEG")
def neg(context: OperatorContext) -> None:
    """Negate. For integers, negate the stored integer regardless of the scale, as in LiteRT."""
    x, out = context.input(0), context.element()
    if x.type.dtype is DType.FLOAT32:
        context.finish(*context.emit(Unary("neg", out), x))
    elif x.type.dtype is DType.INT8:
        numbers = np.arange(*x.type.dtype.range, dtype=np.int8)
        table = np.negative(np.append(numbers, np.int8(x.type.dtype.range[1])))
        context.finish(*context.emit(Lookup(tuple(table.tolist()), out), x))
    else:
        context.finish(_negative(context, x, context.name()))


def _negative(context: OperatorContext, x: Value, name: str) -> Value:
    zero = context.add_constant(np.zeros((), x.type.dtype.numpy), f"{name}_zero", x.type.element)
    return context.emit(Sub(x.type.element), zero, x, names=[name])[0]


@imports("RSQRT")
def rsqrt(context: OperatorContext) -> None:
    context.finish(*context.emit(Rsqrt(context.element()), context.input(0)))


@imports("SIGN")
def sign(context: OperatorContext) -> None:
    """Import SIGN; for int32 by clamping to -1 and 1."""
    x, name = context.input(0), context.name()
    if x.type.dtype is not DType.INT32 or x.type.quant is not None:
        context.finish(*context.emit(Unary("sign", context.element()), x))
        return
    least, most = (context.add_constant(np.array(n, np.int32), f"{name}_{n}") for n in (-1, 1))
    (bounded,) = context.emit(Maximum(), x, least, names=[f"{name}_bounded"])
    context.finish(*context.emit(Minimum(), bounded, most))


@imports("PRELU")
def prelu(context: OperatorContext) -> None:
    """Import PRELU. For int16 values the slopes must be int8, because the references read them as int8."""
    x, slopes = context.input(0), context.input(1)
    if x.type.dtype is DType.INT16:
        array, quant = context.constant(1, "slopes"), slopes.type.quant
        if slopes.type.dtype is not DType.INT8 or quant is None or quant.axis is not None:
            raise Unsupported(f"slopes for int16 values must be int8 with one scale; they are {slopes.type}")
        element = ElementType(DType.INT16, Quant.per_tensor(quant.scale))
        centred = array.astype(np.int16) - np.int16(quant.zero_point)
        slopes = context.add_constant(centred, f"{slopes.name}_centred", element)
    context.finish(*context.emit(Prelu(context.element()), x, slopes))


@imports("GELU")
def gelu(context: OperatorContext) -> None:
    """Import GELU. For float32, LiteRT has its own tanh, which it does not use for its lookup tables."""
    options, out = context.options("GeluOptions"), context.element()
    by_tanh = "gelu_rational_tanh" if out.dtype is DType.FLOAT32 else "gelu_tanh"
    function = by_tanh if options is not None and options.Approximate() else "gelu"
    context.finish(*context.emit(Unary(function, out), context.input(0)))
