"""Call of a subgraph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from microfold.ir.op import Function, Op, Signature, register, require
from microfold.ir.types import Array, Tensor, TensorType


@register
class Call(Op, frozen=True):
    """Results of a subgraph on the operands.

    All calls of a subgraph share its state, like the static variables of a C function.

    Attributes:
        body: name of the subgraph.
        results: types of its outputs.
        composite: name of the pattern that the body matches; empty if there is none.
        compiler: external code generator of the body; empty if `inline` can inline it.
        stateful: whether the body has state, so that calls of it can be neither removed nor merged.
    """

    name: ClassVar[str] = "call"
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    body: str
    results: tuple[TensorType, ...]
    composite: str = ""
    compiler: str = ""
    stateful: bool = False

    @property
    def has_effect(self) -> bool:
        return self.stateful

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.body,)

    def with_bodies(self, names: Sequence[str]) -> Call:
        (body,) = names
        return replace(self, body=body)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        require(all(x is not None for x in operands), "call: no operand may be absent")  # type: ignore[redundant-expr]
        return self.results

    def check_bodies(self, operands: Sequence[TensorType | None], bodies: Sequence[Signature]) -> None:
        (body,) = bodies
        check_signature(f"call: subgraph @{self.body}", body, operands, self.results)
        require(
            self.stateful == body.stateful,
            f"call: stateful must be {str(body.stateful).lower()} for subgraph @{self.body}",
        )
        require(
            not (self.stateful and self.compiler),
            f"call: @{self.body} is compiled by {self.compiler}, so it must get its state as operands",
        )

    def reference(self, body: Function, *operands: Tensor) -> tuple[Array, ...]:
        return tuple(result.data for result in body(operands))


def check_signature(
    what: str,
    body: Signature,
    operands: Sequence[TensorType | None],
    results: Sequence[TensorType],
) -> None:
    """Check that a subgraph has inputs and outputs of these types.

    Raises:
        TypeRuleError: it does not.
    """
    for kind, expected, given in (("reads", body.inputs, operands), ("returns", body.outputs, results)):
        require(
            list(expected) == list(given),
            f"{what} {kind} {_show(expected)}; the operator has {_show(given)}",
        )


def _show(types: Sequence[TensorType | None]) -> str:
    return f"({', '.join(str(t) + (f' {t.quant}' if t is not None and t.quant else '') for t in types)})"
