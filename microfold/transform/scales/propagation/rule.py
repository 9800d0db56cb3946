"""Interface of rules: how an operator passes messages on, and the view of a node that a rule gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, TypeVar

from msgspec import Struct, field

from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.types import Array, TensorType
from microfold.transform.scales.propagation.message import Message

# One message per operand; None: the operand does not change.
Messages = Sequence[Message | None]


class ScaledNode(Struct, frozen=True):
    """View of a node for rules.

    Attributes:
        constants: constants of the graph.
        blocked: values that cannot take a message.
    """

    kind: MessageKind
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
        """Return the number of operands, including absent ones."""
        return len(self.node.inputs)

    def value(self, index: int) -> Value | None:
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def type(self, index: int) -> TensorType:
        """Return the type of a present operand."""
        value = self.value(index)
        assert value is not None
        return value.type

    def array(self, index: int) -> Array | None:
        """Return the content of a constant operand, or None if it is absent or computed."""
        value = self.value(index)
        return self.constants.get(value) if value is not None else None

    def is_constant(self, index: int) -> bool:
        return self.array(index) is not None

    def is_open(self, index: int) -> bool:
        """Return whether this operand is not known to refuse messages."""
        return self.value(index) not in self.blocked


class Rule(ABC):
    """Rule by which messages of one kind pass an operator. A string as answer is the reason of a refusal.

    A message to a constant operand is applied to the constant; one to an absent operand becomes a constant.

    Attributes:
        any_sign: whether negative scales pass.
    """

    any_sign: ClassVar[bool] = True

    @abstractmethod
    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        """Return the messages to the operands that make the first result have `wanted` applied."""

    @abstractmethod
    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        """Return the effect if `offered` is no longer applied to some operands.

        Returns:
            The message that the first result then lacks, and the messages to apply to the other operands.
        """


class Source(Struct, frozen=True):
    """Node that only applies a constant message to an operand.

    Attributes:
        operand: index of the operand.
    """

    operand: int
    message: Message


RuleType = TypeVar("RuleType", bound=Rule)


class MessageKind(Struct, frozen=True, eq=False):
    """Kind of message: scale or shift.

    Attributes:
        name: name of the kind in reasons.
        neutral: element without effect.
        compose: applies one message after another, or a message to an array.
        source: returns the source that a node is, if it is one.
    """

    name: str
    neutral: float
    compose: Callable[[Message, Message], Message]
    source: Callable[[ScaledNode], Source | None]
    _rules: dict[type[Op], Rule] = field(default_factory=dict[type[Op], Rule])

    def rule(self, *op_types: type[Op]) -> Callable[[type[RuleType]], type[RuleType]]:
        """Register the decorated class as the rule of these operators and their subclasses."""

        def decorate(rule_type: type[RuleType]) -> type[RuleType]:
            for op_type in op_types:
                if op_type in self._rules:
                    raise ValueError(f"{op_type.name} has a rule for {self.name}s already")
                self._rules[op_type] = rule_type()
            return rule_type

        return decorate

    def find(self, op: Op) -> Rule | None:
        """Return the rule of an operator, or None."""
        return next((self._rules[base] for base in type(op).__mro__ if base in self._rules), None)
