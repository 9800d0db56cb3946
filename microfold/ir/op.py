"""Operators: one frozen dataclass each, with its type rule and its meaning.

The fields of the dataclass are the attributes. Operands are the positional parameters of `infer` and
`reference`, which therefore also give their names. `reference` is the only definition of what an operator
computes; constant folding, the interpreter and every kernel test use it.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, cast

from microfold.errors import TypeRuleError
from microfold.ir.limits import MAX_INTEGER
from microfold.ir.types import FLOAT32_MAX, Array, DType, Tensor, TensorType
from microfold.support.frozen import frozen


class Pattern(enum.IntEnum):
    """How outputs depend on inputs; fusion reads it. The words are TVM's (`relay::OpPatternKind`)."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    OUT_ELEMENTWISE_FUSABLE = 4
    OPAQUE = 8


Function = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]
NO_FUNCTIONS: Mapping[str, Function] = MappingProxyType({})


@frozen
class Signature:
    """What a caller may know of a graph that it calls.

    Attributes:
        stateful: it has state, so that one call changes what the next one gives.
    """

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    stateful: bool = False


@frozen
class Op:
    """Base of all operators.

    Class attributes:
        name: how the text form spells it; unique.
        pattern: see `Pattern`.
        is_view: the output is the input's bytes, or a part of them, under another shape: no code, no copy.
        is_concat_view: a view the other way round: the inputs are the output's bytes, one after the other.
        updates_in_place: every kernel can compute the result where the first operand lies.
        any_zero_point: its meaning is one thing also where int16 values have a zero point other than 0. The
            arithmetic of the references' kernels differs there: some subtract it, some ignore it.
        takes_infinities: an infinite constant has a meaning: it is moved, compared, or wins or loses a sum.
            Elsewhere passes that reorder arithmetic would give others, as ``0 * inf`` does.
        open_ended: attributes that may be infinite.
    """

    name: ClassVar[str]
    pattern: ClassVar[Pattern] = Pattern.OPAQUE
    is_view: ClassVar[bool] = False
    is_concat_view: ClassVar[bool] = False
    updates_in_place: ClassVar[bool] = False
    any_zero_point: ClassVar[bool] = False
    takes_infinities: ClassVar[bool] = False
    open_ended: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Refuse attributes that are no numbers for C, whatever the operands.

        Raises:
            TypeRuleError: one is not finite, or beyond float32 or int32.
        """
        for field in dataclasses.fields(self):
            fault = _number_fault(getattr(self, field.name), field.name in self.open_ended)
            require(not fault, f"{self.name}: {field.name} {fault}")

    @property
    def has_effect(self) -> bool:
        """It must be kept, and kept in order, even if nothing reads its outputs."""
        return False

    @property
    def bodies(self) -> tuple[str, ...]:
        """Names of the subgraphs that it runs; `reference` gets them, as functions, before the operands."""
        return ()

    def with_bodies(self, names: Sequence[str]) -> Op:
        """The operator with other names for its `bodies`, in their order."""
        return self

    # `**_` makes the signatures below mean "any operands" to type checkers; no operator has it.

    def infer(self, *operands: Any, **_: Any) -> TensorType | tuple[TensorType, ...]:
        """Type rule: operand types to result types.

        Raises:
            TypeRuleError: the operands do not fit; states the rule, then the values.
        """
        raise NotImplementedError

    def reference(self, *operands: Any, **_: Any) -> Array | tuple[Array, ...]:
        """The operator's meaning on `Tensor` operands, bit-exact with the named reference."""
        raise NotImplementedError

    def is_cut_short(
        self,
        operands: Sequence[Tensor | None],
        results: Sequence[Tensor],
        functions: Mapping[str, Function],
    ) -> bool:
        """Whether an operator with `bodies` has stopped before it was done: a loop at its limit.

        Args:
            operands, results: of the evaluation.
            functions: the meaning of each of its `bodies`.
        """
        del operands, results, functions
        return False

    def check_bodies(self, operands: Sequence[TensorType | None], bodies: Sequence[Signature]) -> None:
        """Type rule of an operator with `bodies`: that their signatures fit.

        Raises:
            TypeRuleError: they do not.
        """

    def view_start(self, x: TensorType) -> int:
        """The first of the input's elements that a view looks at."""
        return 0

    def macs(self, *operands: Any, **_: Any) -> int:
        """Multiply-accumulates of one evaluation (0 for everything that is not a product sum)."""
        return 0

    def operations(self, *operands: Any, **_: Any) -> int:
        """Elementary operations of one evaluation, beside those of reading operands and writing results."""
        return self.macs(*operands)

    def infer_all(self, operands: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        """`infer` with the presence of operands checked and the result always a tuple."""
        self._check_count(len(operands))
        if None in operands:
            names = required_operands(type(self))
            given = zip(names, operands, strict=False)
            absent = [name for name, operand in given if name and operand is None]
            require(not absent, f"{self.name} needs its operand {', '.join(absent)}; it is absent")
        result = self.infer(*operands)
        results = result if isinstance(result, tuple) else (result,)
        if not self.any_zero_point:
            self._check_zero_points([*operands, *results])
        return results

    def evaluate(
        self, operands: Sequence[Tensor | None], functions: Mapping[str, Function] = NO_FUNCTIONS
    ) -> tuple[Tensor, ...]:
        """`reference` with results checked against `infer` and carrying their types.

        Args:
            functions: the meaning of each of its `bodies`.
        """
        types = self.infer_all([operand.type if operand is not None else None for operand in operands])
        result = self.reference(*(functions[name] for name in self.bodies), *operands)
        arrays = result if isinstance(result, tuple) else (result,)
        for array, expected in zip(arrays, types, strict=True):
            if array.shape != expected.shape or array.dtype != expected.dtype.numpy:
                raise AssertionError(
                    f"{self.name}: reference gave {array.dtype}{array.shape}, infer says {expected}"
                )
        return tuple(Tensor(t, a) for t, a in zip(types, arrays, strict=True))

    def _check_zero_points(self, types: Sequence[TensorType | None]) -> None:
        for type in types:
            if type is not None and type.dtype is DType.INT16 and type.quant is not None:
                points = type.quant.zero_points
                require(not any(points), f"{self.name}: int16 zero points must be 0; it has {points[0]}")

    def _check_count(self, given: int) -> None:
        minimum, maximum = operand_count(type(self))
        if given < minimum or (maximum is not None and given > maximum):
            expected = (
                f"{minimum} or more"
                if maximum is None
                else " to ".join(str(n) for n in sorted({minimum, maximum}))
            )
            raise TypeRuleError(f"{self.name} takes {expected} operands; {given} given")


@cache
def operand_count(op_type: type[Op]) -> tuple[int, int | None]:
    """Smallest and largest number of operands (None: any number), read off `infer`'s signature."""
    parameters = list(inspect.signature(op_type.infer).parameters.values())[1:]
    minimum = sum(
        p.default is inspect.Parameter.empty and p.kind is not inspect.Parameter.VAR_POSITIONAL
        for p in parameters
    )
    variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    return minimum, None if variadic else len(parameters)


@cache
def required_operands(op_type: type[Op]) -> tuple[str, ...]:
    """The name of each operand that must not be absent, '' for the others, read off `infer`'s signature."""
    parameters = list(inspect.signature(op_type.infer).parameters.values())[1:]
    return tuple("" if p.default is None or "None" in str(p.annotation) else p.name for p in parameters)


REGISTRY: dict[str, type[Op]] = {}


OpType = TypeVar("OpType", bound=Op)


def register(op_type: type[OpType]) -> type[OpType]:
    """Class decorator: makes an operator known to the text form by its name."""
    if op_type.name in REGISTRY:
        raise ValueError(f"operator name {op_type.name!r} is taken by {REGISTRY[op_type.name].__name__}")
    REGISTRY[op_type.name] = op_type
    return op_type


def _number_fault(value: Any, infinite: bool) -> str:
    """What is wrong with an attribute's value, or with one inside of it; empty if nothing is."""
    if isinstance(value, tuple):
        faults = (_number_fault(item, infinite) for item in cast("tuple[Any, ...]", value))
        return next(filter(None, faults), "")
    if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        return f"must be in [{-MAX_INTEGER}, {MAX_INTEGER}]; it is {value}"
    if isinstance(value, float) and not (abs(value) <= FLOAT32_MAX or (infinite and math.isinf(value))):
        return f"must be a finite float32; it is {value}"
    return ""


def require(condition: bool, rule: str) -> None:
    """Raise `TypeRuleError(rule)` unless the condition holds."""
    if not condition:
        raise TypeRuleError(rule)
