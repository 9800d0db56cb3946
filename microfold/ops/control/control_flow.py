"""Conditions and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from microfold.ir.op import Function, Op, Signature, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.control.call import check_signature


def _is_condition(type: TensorType) -> bool:
    return type.dtype is DType.BOOL and type.size == 1


def require_stateless(op: str, names: Sequence[str], bodies: Sequence[Signature]) -> None:
    """Raise `TypeRuleError` if a body has state of its own between runs."""
    stateful = [f"@{name}" for name, body in zip(names, bodies, strict=True) if body.stateful]
    require(not stateful, f"{op}: {', '.join(stateful)} must get its state as operands")


def require_condition(op: str, name: str, condition: Signature) -> None:
    """Raise `TypeRuleError` unless a subgraph returns one bool."""
    results = condition.outputs
    require(
        len(results) == 1 and _is_condition(results[0]),
        f"{op}: the condition @{name} must return one bool; it returns {list(map(str, results))}",
    )


@register
class If(Op, frozen=True):
    """Results of one of two subgraphs on the operands after the condition.

    Attributes:
        then: subgraph to run if the condition is true.
        otherwise: subgraph to run if it is false.
        results: types of the outputs of both.
    """

    name: ClassVar[str] = "if"
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    then: str
    otherwise: str
    results: tuple[TensorType, ...]

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.then, self.otherwise)

    def with_bodies(self, names: Sequence[str]) -> If:
        then, otherwise = names
        return If(then, otherwise, self.results)

    def infer(self, condition: TensorType, *operands: TensorType) -> tuple[TensorType, ...]:
        require(_is_condition(condition), f"if: the condition must be one bool; it is {condition}")
        return self.results

    def check_bodies(self, operands: Sequence[TensorType | None], bodies: Sequence[Signature]) -> None:
        require_stateless("if", self.bodies, bodies)
        for name, body in zip(self.bodies, bodies, strict=True):
            check_signature(f"if: subgraph @{name}", body, operands[1:], self.results)

    def reference(
        self, then: Function, otherwise: Function, condition: Tensor, *operands: Tensor
    ) -> tuple[Array, ...]:
        chosen = then if condition.data.item() else otherwise
        return tuple(result.data for result in chosen(operands))


@register
class While(Op, frozen=True):
    """Operands after repeated runs of a subgraph, as long as another subgraph on them returns true.

    Attributes:
        condition: subgraph that decides before each run, including the first.
        body: subgraph that computes the next operands.
    """

    name: ClassVar[str] = "while"
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    condition: str
    body: str

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.condition, self.body)

    def with_bodies(self, names: Sequence[str]) -> While:
        condition, body = names
        return While(condition, body)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        require(all(x is not None for x in operands), "while: no operand may be absent")  # type: ignore[redundant-expr]
        return operands

    def check_bodies(self, operands: Sequence[TensorType | None], bodies: Sequence[Signature]) -> None:
        require_stateless("while", self.bodies, bodies)
        condition, body = bodies
        require_condition("while", self.condition, condition)
        check_signature(f"while: subgraph @{self.condition}", condition, operands, condition.outputs)
        check_signature(f"while: subgraph @{self.body}", body, operands, body.inputs)
        check_signature(f"while: subgraph @{self.body}", body, body.inputs, body.inputs)

    def reference(self, condition: Function, body: Function, *operands: Tensor) -> tuple[Array, ...]:
        current: Sequence[Tensor] = operands
        while condition(current)[0].data.item():
            current = body(current)
        return tuple(tensor.data for tensor in current)
