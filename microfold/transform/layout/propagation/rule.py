"""Interface of rules: how an operator handles reordered operands, and the view of a node that a rule gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import Operand, RewriteSite
from microfold.ir.types import Array, Shape, TensorType
from microfold.passes.context import Numerics
from microfold.transform.layout.propagation.arrangement import Arrangement
from microfold.transform.layout.propagation.constants import permuted
from microfold.transform.layout.propagation.frame import Frame
from microfold.transform.layout.propagation.message import Arranged, SweepResults, put_in_order

# Maximum number of orders of an operator's operands that are tried for its result.
MAX_ORDERS = 8


class SweepPolicy(Struct, frozen=True):
    """Policy of a sweep for decisions that rules leave open.

    Attributes:
        eager: whether operands are always brought into the order of the others; otherwise only if that moves
            fewer elements than ending the message.
        grow: whether messages pass operators whose result is larger than their operands.
        numerics: ``exact`` keeps the order in which floats are summed, if the sum is over elements.
    """

    eager: bool = False
    grow: bool = True
    numerics: Numerics = "exact"


class ReorderedNode(Struct, frozen=True):
    """View for rules of a node with reordered operands.

    Attributes:
        inputs: replacements of the node's inputs.
    """

    site: RewriteSite[None]
    inputs: tuple[Operand | None, ...]
    manner: SweepPolicy
    made: SweepResults

    @property
    def node(self) -> Node:
        return self.site.node

    @property
    def op(self) -> Op:
        return self.site.node.op

    @property
    def out(self) -> TensorType:
        """Type of the first result."""
        return self.node.outputs[0].type

    def operand(self, index: int) -> Operand:
        """Return a present operand."""
        operand = self.inputs[index]
        assert operand is not None
        return operand

    def type(self, index: int) -> TensorType:
        """Return the type that the node expects for a present operand."""
        value = self.node.inputs[index]
        assert value is not None
        return value.type

    def arranged(self, index: int = 0) -> Arranged | None:
        """Return the message for an operand, or None if it is in order."""
        operand = self.operand(index)
        return operand if isinstance(operand, Arranged) else None

    def array(self, index: int) -> Array | None:
        """Return the content of a constant operand, or None if it is absent or computed."""
        return self.site.array(self.node.inputs[index]) if index < len(self.node.inputs) else None

    def frame(self, index: int = 0) -> Frame | None:
        """Return the frame of a reordered operand, or None."""
        message = self.arranged(index)
        if message is None:
            return None
        return Frame.of(message.arrangement, message.type.shape, message.source.type.shape)

    def cost(self, index: int, frame: Frame) -> int:
        """Return the number of elements that `bring` moves."""
        if self.array(index) is not None:
            return 0
        path = self._path(index, frame)
        return self.type(index).size if path is None or not path.is_view else 0

    def bring(self, index: int, frame: Frame) -> Value:
        """Return an operand with the axes of the source of `frame`; with extent 1 for broadcast axes."""
        builder, keep = self.site.builder, self.extends(index, frame)
        value, shape = self.node.inputs[index], frame.kept_shape(keep)
        assert value is not None
        array = self.array(index)
        if array is not None and array.size == 1:
            return builder.value(self.operand(index))
        if array is not None:
            moved = frame.arrangement.restricted(keep).inverse.apply(array).reshape(shape)
            return builder.constant(np.ascontiguousarray(moved), value.type.with_shape(shape), value.name)
        path = self._path(index, frame)
        operand = self.operand(index)
        if path is None or not isinstance(operand, Arranged):
            path = path or frame.arrangement.restricted(keep).inverse
            return put_in_order(builder, builder.value(operand), path, shape, value.name, self.made)
        return put_in_order(builder, operand.source, path, shape, value.name, self.made)

    def permuted(self, index: int, order: Array, axis: int) -> Value:
        """Return a constant operand with reordered slices along an axis."""
        return permuted(self.site.builder, self.site.builder.value(self.operand(index)), order, axis)

    def _path(self, index: int, frame: Frame) -> Arrangement | None:
        """Return the arrangement from an operand's present order to the order of the frame's source."""
        wanted = frame.arrangement.restricted(self.extends(index, frame)).inverse
        operand = self.operand(index)
        return operand.arrangement.then(wanted) if isinstance(operand, Arranged) else wanted

    def extends(self, index: int, frame: Frame) -> Callable[[int], bool]:
        """Return a predicate for the factors of the frame along which the operand is not broadcast."""
        value = frame.value
        shape = (1,) * (len(value) - self.type(index).rank) + self.type(index).shape
        return lambda factor: shape[frame.axes[factor]] == value[frame.axes[factor]]

    def gives_up(self, cost: int, here: int) -> bool:
        """Return whether a message ends because reordering the other operands would move more elements."""
        if cost < here:
            return False
        self.made.choices.add("eager")
        return not self.manner.eager

    def orders(self, indices: Sequence[int]) -> Iterator[int]:
        """Yield the reordered ones among some operands, one for each order."""
        seen: set[tuple[Arrangement, Shape, Shape]] = set()
        for index in indices:
            message = self.arranged(index)
            if message is None or len(seen) == MAX_ORDERS:
                continue
            key = message.arrangement, message.type.shape, message.source.type.shape
            if key not in seen:
                seen.add(key)
                yield index

    def emit(self, op: Op, *inputs: Operand | None) -> Value:
        """Append the node's replacement, with one result. The epilogue has no operands and stays."""
        return self.site.emit(op, *inputs, epilogue=self.site.epilogue)[0]

    def result(self, source: Value, arrangement: Arrangement) -> Operand:
        """Return the replacement of the node's result, whose elements are those in `source`."""
        old = self.node.outputs[0]
        origin = next(m.origin for m in self.inputs if isinstance(m, Arranged))
        message = Arranged(source, arrangement, old.type, old.name, origin, self.made)
        return message.realize(self.site.builder) if arrangement.is_view else message


# Replacement of the node's result, or the reason why it needs its operands in their original order.
Answer = Operand | str
Rule = Callable[[ReorderedNode], Answer]
RULES: dict[type[Op], Rule] = {}


def layout_rule(*op_types: type[Op]) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of these operators and their subclasses."""

    def decorate(rule: Rule) -> Rule:
        for op_type in op_types:
            if op_type in RULES:
                raise ValueError(f"{op_type.name} has a rule for orders already")
            RULES[op_type] = rule
        return rule

    return decorate
