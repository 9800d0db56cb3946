"""What an operator says about messages, and what it is told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import ClassVar, TypeVar

from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.types import Array, TensorType
from microfold.support.frozen import frozen
from microfold.transform.scales.propagation.message import Message

# One per operand; None where an operand stays as it is.
Messages = Sequence[Message | None]


@frozen
class ScaledNode:
    """A node as rules see it.

    Attributes:
        constants: of the graph.
        blocked: values that are known not to take a message.
    """

    kind: Kind
    node: Node
    constants: Mapping[Value, Array]
    blocked: Collection[Value]

    @property
    def op(self) -> Op:
        return self.node.op

    @property
    def out(self) -> TensorType:
        """Type of the first result, before the epilogue (which keeps shapes)."""
        return self.node.outputs[0].type

    def count(self) -> int:
        """The number of operands, absent ones included."""
        return len(self.node.inputs)

    def value(self, index: int) -> Value | None:
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def type(self, index: int) -> TensorType:
        """Type of an operand that is there."""
        value = self.value(index)
        assert value is not None
        return value.type

    def array(self, index: int) -> Array | None:
        """The constant behind an operand; None if it is absent or computed."""
        value = self.value(index)
        return self.constants.get(value) if value is not None else None

    def is_constant(self, index: int) -> bool:
        return self.array(index) is not None

    def is_open(self, index: int) -> bool:
        """Nothing is known against a message to this operand."""
        return self.value(index) not in self.blocked


class Rule(ABC):
    """How messages of a kind pass an operator. Answers that are a string are refusals with their reason.

    A message to a constant operand is applied to the constant; one to an absent operand becomes a constant.

    Attributes:
        any_sign: False if only scales that are not negative pass.
    """

    any_sign: ClassVar[bool] = True

    @abstractmethod
    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        """What to apply to the operands, so that the first result comes out with `wanted` applied."""

    @abstractmethod
    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        """What happens if `offered` is no longer applied to some operands.

        Returns:
            What the first result then lacks, and what to apply to the other operands.
        """


@frozen
class Source:
    """A node that does nothing but apply a constant message to an operand.

    Attributes:
        operand: index of the operand.
    """

    operand: int
    message: Message


RuleType = TypeVar("RuleType", bound=Rule)


@frozen(eq=False)
class Kind:
    """A kind of message.

    Attributes:
        name: how reasons call it.
        neutral: the element that changes nothing.
        compose: applies one message after another, or a message to an array.
        source: says whether a node is where messages come from.
    """

    name: str
    neutral: float
    compose: Callable[[Message, Message], Message]
    source: Callable[[ScaledNode], Source | None]
    _rules: dict[type[Op], Rule] = field(default_factory=dict[type[Op], Rule])

    def rule(self, *op_types: type[Op]) -> Callable[[type[RuleType]], type[RuleType]]:
        """Class decorator: the rule of these operators and their subclasses."""

        def decorate(rule_type: type[RuleType]) -> type[RuleType]:
            for op_type in op_types:
                if op_type in self._rules:
                    raise ValueError(f"{op_type.name} has a rule for {self.name}s already")
                self._rules[op_type] = rule_type()
            return rule_type

        return decorate

    def find(self, op: Op) -> Rule | None:
        """The rule of an operator."""
        return next((self._rules[base] for base in type(op).__mro__ if base in self._rules), None)
