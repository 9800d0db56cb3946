"""Loops with a bounded number of iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace

from microfold.ir.op import Function, Op, Signature, register, require
from microfold.ir.types import Array, Tensor, TensorType
from microfold.ops.control.call import check_signature
from microfold.ops.control.control_flow import While, require_condition, require_stateless


@register
class LimitedWhile(While, frozen=True):
    """`While` that stops after a number of iterations, even if its condition still holds.

    Attributes:
        limit: maximum number of iterations.
    """

    name: ClassVar[str] = "limited_while"

    limit: int

    def with_bodies(self, names: Sequence[str]) -> LimitedWhile:
        condition, body = names
        return replace(self, condition=condition, body=body)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        _require_count("limited_while: limit", self.limit)
        return super().infer(*operands)

    def reference(self, condition: Function, body: Function, *operands: Tensor) -> tuple[Array, ...]:
        return _run(condition, body, self.limit, operands, ())


@register
class Loop(Op, frozen=True):
    """Loop in the form for code generation: the carried operands after iterations of a subgraph.

    Attributes:
        body: subgraph that computes the next carried operands from all operands.
        runs: number of iterations, or the maximum if there is a condition.
        condition: subgraph that decides before each iteration, including the first; empty if there is none.
        invariants: number of last operands that are the same in all iterations, and are not results.
        may_stop: whether the limit `runs` may stop the loop, because no proof shows that its condition ends
            it before.
    """

    name: ClassVar[str] = "loop"
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    body: str
    runs: int
    condition: str = ""
    invariants: int = 0
    may_stop: bool = False

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.condition, self.body) if self.condition else (self.body,)

    def with_bodies(self, names: Sequence[str]) -> Loop:
        *condition, body = names
        return replace(self, condition=condition[0] if condition else "", body=body)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        require(all(x is not None for x in operands), "loop: no operand may be absent")  # type: ignore[redundant-expr]
        _require_count("loop: runs", self.runs)
        carried = len(operands) - self.invariants
        require(
            self.invariants >= 0 and carried >= 1,
            f"loop: at least one operand must be carried; {self.invariants} of {len(operands)} are invariant",
        )
        return operands[:carried]

    def check_bodies(self, operands: Sequence[TensorType | None], bodies: Sequence[Signature]) -> None:
        require_stateless("loop", self.bodies, bodies)
        *conditions, body = bodies
        for condition in conditions:
            require_condition("loop", self.condition, condition)
            check_signature(f"loop: subgraph @{self.condition}", condition, operands, condition.outputs)
        carried = body.inputs[: len(body.inputs) - self.invariants]
        check_signature(f"loop: subgraph @{self.body}", body, operands, carried)

    def is_cut_short(
        self,
        operands: Sequence[Tensor | None],
        results: Sequence[Tensor],
        functions: Mapping[str, Function],
    ) -> bool:
        """Return whether the condition still holds after the last iteration."""
        if not self.may_stop:
            return False
        invariants = [x for x in operands[len(results) :] if x is not None]
        return bool(functions[self.condition]([*results, *invariants])[0].data.item())

    def reference(self, *parts: Function | Tensor) -> tuple[Array, ...]:
        functions = [part for part in parts if not isinstance(part, Tensor)]
        operands = [part for part in parts if isinstance(part, Tensor)]
        carried = len(operands) - self.invariants
        condition = functions[0] if self.condition else None
        return _run(condition, functions[-1], self.runs, operands[:carried], operands[carried:])


def _run(
    condition: Function | None,
    body: Function,
    runs: int,
    carried: Sequence[Tensor],
    invariants: Sequence[Tensor],
) -> tuple[Array, ...]:
    for _ in range(runs):
        current = [*carried, *invariants]
        if condition is not None and not condition(current)[0].data.item():
            break
        carried = body(current)
    return tuple(tensor.data for tensor in carried)


def _require_count(what: str, count: int) -> None:
    require(count >= 0, f"{what} must not be negative; it is {count}")
