"""Base class and registry of operators.

An operator is a frozen `Struct` whose fields are its attributes. Its operands are the positional parameters
of `infer`, its type rule, and of `reference`, which also name them. `reference` is the only definition of an
operator's result. Constant folding, the interpreter and every kernel test use it.
"""

from __future__ import annotations

import enum
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, cast

from msgspec import Struct

from microfold.errors import TypeRuleError
from microfold.ir.limits import MAX_INTEGER
from microfold.ir.types import FLOAT32_MAX, Array, DType, Tensor, TensorType


class Pattern(enum.IntEnum):
    """Dependence of outputs on inputs, as fusion uses it. The names are TVM's (`relay::OpPatternKind`)."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    OUT_ELEMENTWISE_FUSABLE = 4
    OPAQUE = 8


Function = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]
NO_FUNCTIONS: Mapping[str, Function] = MappingProxyType({})


class Signature(Struct, frozen=True):
    """Interface of a graph, as its callers see it.

    Attributes:
        stateful: whether the graph has state, so that a call can change the results of later calls.
    """

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    stateful: bool = False


class Op(Struct, frozen=True):
    """Base class of all operators.

    Class attributes:
        name: unique name of the operator in the text form.
        pattern: see `Pattern`.
        is_view: whether the output is all or part of the input's bytes under another shape. A view needs no
            code and no copy.
        is_concat_view: whether the view is reversed: the inputs are consecutive parts of the output's bytes.
        updates_in_place: whether every kernel can write the result over the first operand.
        any_zero_point: whether the result is well defined for int16 values with a zero point other than 0.
            If False, such zero points are rejected: some reference kernels subtract them, some ignore them.
        takes_infinities: whether constants may be infinite, because the operator only moves, compares or adds
            them. Passes that reorder other arithmetic could change the result, for example of ``0 * inf``.
        open_ended: names of the attributes that may be infinite.
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
        """Check that all numbers in attributes can be represented in C.

        Raises:
            TypeRuleError: a number is not finite, or outside the range of float32 or int32.
        """
        for attribute in self.__struct_fields__:
            fault = _number_fault(getattr(self, attribute), attribute in self.open_ended)
            require(not fault, f"{self.name}: {attribute} {fault}")

    @property
    def has_effect(self) -> bool:
        """Whether the operator must be kept, in its order, even if nothing reads its outputs."""
        return False

    @property
    def bodies(self) -> tuple[str, ...]:
        """Names of the subgraphs that the operator runs; `reference` gets their functions first."""
        return ()

    def with_bodies(self, names: Sequence[str]) -> Op:
        """Return the operator with other names for its `bodies`, in their order."""
        return self

    # For type checkers, `**_` makes the signatures below mean "any operands". No operator has it.

    def infer(self, *operands: Any, **_: Any) -> TensorType | tuple[TensorType, ...]:
        """Return the result types for these operand types.

        Raises:
            TypeRuleError: the operands violate the type rule; states the rule, then the values.
        """
        raise NotImplementedError

    def reference(self, *operands: Any, **_: Any) -> Array | tuple[Array, ...]:
        """Return the results for `Tensor` operands, bit-exact with the named reference implementation."""
        raise NotImplementedError

    def is_cut_short(
        self,
        operands: Sequence[Tensor | None],
        results: Sequence[Tensor],
        functions: Mapping[str, Function],
    ) -> bool:
        """Return whether an operator with `bodies` stopped before it was done, like a loop at its limit.

        Args:
            operands, results: those of the evaluation.
            functions: function that computes each of the `bodies`, by name.
        """
        del operands, results, functions
        return False

    def check_bodies(self, operands: Sequence[TensorType | None], bodies: Sequence[Signature]) -> None:
        """Check that the signatures of the `bodies` fit the operator.

        Raises:
            TypeRuleError: they do not.
        """

    def view_start(self, x: TensorType) -> int:
        """Return the first element of the input that a view covers."""
        return 0

    def macs(self, *operands: Any, **_: Any) -> int:
        """Return the multiply-accumulates of one evaluation; 0 unless the operator is a product sum."""
        return 0

    def operations(self, *operands: Any, **_: Any) -> int:
        """Return the elementary operations of one evaluation, without loads and stores of tensors."""
        return self.macs(*operands)

    def infer_all(self, operands: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        """Return the result of `infer` as a tuple, after a check that all required operands are present."""
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
        """Return the results of `reference` with their types, after a check that they agree with `infer`.

        Args:
            functions: function that computes each of the `bodies`, by name.
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
            raise TypeRuleError(f"{self.name} has {expected} operands; got {given}")


@cache
def operand_count(op_type: type[Op]) -> tuple[int, int | None]:
    """Return the least and greatest number of operands (None: no limit), from the signature of `infer`."""
    parameters = list(inspect.signature(op_type.infer).parameters.values())[1:]
    minimum = sum(
        p.default is inspect.Parameter.empty and p.kind is not inspect.Parameter.VAR_POSITIONAL
        for p in parameters
    )
    variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    return minimum, None if variadic else len(parameters)


@cache
def required_operands(op_type: type[Op]) -> tuple[str, ...]:
    """Return the name of each operand, or "" if it may be absent, from the signature of `infer`."""
    parameters = list(inspect.signature(op_type.infer).parameters.values())[1:]
    return tuple("" if p.default is None or "None" in str(p.annotation) else p.name for p in parameters)


REGISTRY: dict[str, type[Op]] = {}


OpType = TypeVar("OpType", bound=Op)


def register(op_type: type[OpType]) -> type[OpType]:
    """Class decorator that registers an operator under its name in the text form."""
    if op_type.name in REGISTRY:
        raise ValueError(
            f"operator name {op_type.name!r} is already used by {REGISTRY[op_type.name].__name__}"
        )
    REGISTRY[op_type.name] = op_type
    return op_type


def _number_fault(value: Any, infinite: bool) -> str:
    """Return the fault of an attribute's value, or of an element of a tuple, or "" if it is valid."""
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
