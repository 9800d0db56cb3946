"""Fused functions of float32 elements, without intermediate values in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar

from microfold.errors import TypeRuleError
from microfold.ir.op import REGISTRY, Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.hard_swish import HardSwish
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.float_binary import FloatBinary
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import FUNCTIONS, Unary

# Name of a function, indices of its arguments, and its attributes.
Call = tuple[str, tuple[int, ...], tuple[float, ...]]

_FLOAT = ElementType(DType.FLOAT32)


def _leaky_relu(alpha: float) -> Op:
    return LeakyRelu(alpha, _FLOAT)


# Operators by the names of their functions. A function of `Unary` and a `FloatBinary` have their own names.
_OPERATORS: Mapping[str, Callable[..., Op]] = {
    "abs": lambda: Abs(_FLOAT),
    "add": lambda: Add(_FLOAT),
    "clip": Clip,
    "dequantize": Dequantize,
    "hard_swish": lambda: HardSwish(_FLOAT),
    "leaky_relu": _leaky_relu,
    "logistic": lambda: Logistic(_FLOAT),
    "maximum": Maximum,
    "minimum": Minimum,
    "mul": lambda: Mul(_FLOAT),
    "prelu": lambda: Prelu(_FLOAT),
    "rsqrt": lambda: Rsqrt(_FLOAT),
    "squared_difference": lambda: SquaredDifference(_FLOAT),
    "sub": lambda: Sub(_FLOAT),
    "tanh": lambda: Tanh(_FLOAT),
}
# Number of attributes of functions that have any.
_NUMBERS = {"clip": 2, "leaky_relu": 1}


def function_of(op: Op) -> tuple[str, tuple[float, ...]] | None:
    """Return the function of an operator on float32 values, and its attributes; None if it has none."""
    if isinstance(op, Unary):
        return op.function, ()
    if isinstance(op, Clip):
        return op.name, (op.minimum, op.maximum)
    if isinstance(op, LeakyRelu):
        return op.name, (op.alpha,)
    return (op.name, ()) if op.name in _OPERATORS or isinstance(op, FloatBinary) else None


def operator(function: str, numbers: tuple[float, ...]) -> Op:
    """Return the operator that computes a function.

    Raises:
        TypeRuleError: the function does not exist, or it has other attributes.
    """
    make, own = _OPERATORS.get(function), REGISTRY.get(function)
    if function in FUNCTIONS:
        make = partial(Unary, function, _FLOAT)
    elif own is not None and issubclass(own, FloatBinary):
        make = partial(own, _FLOAT)
    if make is None:
        raise TypeRuleError(f"expression: there is no function {function!r}")
    wanted = _NUMBERS.get(function, 0)
    require(len(numbers) == wanted, f"expression: {function} has {wanted} numbers; got {len(numbers)}")
    return make(*numbers)


@register
class Expression(Op, frozen=True):
    """Functions of float32 elements in sequence; the result is that of the last one.

    Each function is computed like the operator of its name, so the result is the same as that of the
    operators.

    Attributes:
        steps: name, argument indices and attributes of each function. Indices count first the operands, then
            the results of the steps before. Integer operands must be read by ``dequantize``.
        out: element type to which the last result is quantised; None if it stays float32.
    """

    name: ClassVar[str] = "expression"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True
    open_ended: ClassVar[tuple[str, ...]] = ("steps",)

    steps: tuple[Call, ...]
    out: ElementType | None = None

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions, in order of execution."""
        names = tuple(function for function, _, _ in self.steps)
        return names if self.out is None else (*names, Quantize.name)

    def infer(self, *operands: TensorType) -> TensorType:
        require(bool(self.steps), "expression: it must have at least one step")
        values = list(operands)
        for function, taken, numbers in self.steps:
            for index in taken:
                require(
                    0 <= index < len(values),
                    f"expression: arguments of {function} must be existing values, 0 to {len(values) - 1}; "
                    f"it reads {index}",
                )
            values += operator(function, numbers).infer_all([values[index] for index in taken])
            require(
                values[-1].dtype is DType.FLOAT32,
                f"expression: results of steps must be float32; {function} returns {values[-1].dtype.value}",
            )
        taken = {index for _, indices, _ in self.steps for index in indices}
        for index in range(len(values) - 1):
            require(index in taken, f"expression: every value but the last must be read; {index} is not")
        return values[-1] if self.out is None else Quantize(self.out).infer(values[-1])

    def reference(self, *operands: Tensor) -> Array:
        values = list(operands)
        for function, taken, numbers in self.steps:
            values += operator(function, numbers).evaluate([values[index] for index in taken])
        return values[-1].data if self.out is None else Quantize(self.out).reference(values[-1])

    def operations(self, *operands: TensorType) -> int:
        return len(self.steps) * self.infer(*operands).size
