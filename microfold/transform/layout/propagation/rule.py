"""What an operator says about operands that exist under another order, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import Operand, RewriteSite
from microfold.ir.types import Array, Shape, TensorType
from microfold.passes.context import Numerics
from microfold.support.frozen import frozen
from microfold.transform.layout.propagation.arrangement import Arrangement
from microfold.transform.layout.propagation.constants import permuted
from microfold.transform.layout.propagation.frame import Frame
from microfold.transform.layout.propagation.message import Arranged, Made, put_in_order

# So many orders of an operator's operands are tried for its result.
MAX_ORDERS = 8


@frozen
class Manner:
    """How a sweep decides where rules leave a choice.

    Attributes:
        eager: operands that are not in the others' order are put there, whatever that moves; otherwise only
            if it moves fewer elements than to give the message up.
        grow: messages pass operators whose result is larger than their operands.
        numerics: ``exact`` keeps the order in which floats are summed, where the sum is one of elements.
    """

    eager: bool = False
    grow: bool = True
    numerics: Numerics = "exact"


@frozen
class ReorderedNode:
    """A node, some of whose operands exist under another order, as rules see it.

    Attributes:
        inputs: what stands for the node's inputs.
    """

    site: RewriteSite[None]
    inputs: tuple[Operand | None, ...]
    manner: Manner
    made: Made

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
        """An operand that is there."""
        operand = self.inputs[index]
        assert operand is not None
        return operand

    def type(self, index: int) -> TensorType:
        """What the node expects as an operand that is there."""
        value = self.node.inputs[index]
        assert value is not None
        return value.type

    def arranged(self, index: int = 0) -> Arranged | None:
        """The message that stands for an operand."""
        operand = self.operand(index)
        return operand if isinstance(operand, Arranged) else None

    def array(self, index: int) -> Array | None:
        """The constant behind an operand; None if it is absent or computed."""
        return self.site.array(self.node.inputs[index]) if index < len(self.node.inputs) else None

    def frame(self, index: int = 0) -> Frame | None:
        """The frame of an operand that exists under another order."""
        message = self.arranged(index)
        if message is None:
            return None
        return Frame.of(message.arrangement, message.type.shape, message.source.type.shape)

    def cost(self, index: int, frame: Frame) -> int:
        """How many elements `bring` moves."""
        if self.array(index) is not None:
            return 0
        path = self._path(index, frame)
        return self.type(index).size if path is None or not path.is_view else 0

    def bring(self, index: int, frame: Frame) -> Value:
        """An operand as the source of `frame` has its elements; with extent 1 where it broadcasts."""
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
        """A constant operand with the slices along an axis in another order."""
        return permuted(self.site.builder, self.site.builder.value(self.operand(index)), order, axis)

    def _path(self, index: int, frame: Frame) -> Arrangement | None:
        """From where an operand's elements are to where the frame has them."""
        wanted = frame.arrangement.restricted(self.extends(index, frame)).inverse
        operand = self.operand(index)
        return operand.arrangement.then(wanted) if isinstance(operand, Arranged) else wanted

    def extends(self, index: int, frame: Frame) -> Callable[[int], bool]:
        """Which of the frame's factors an operand has: all but those that it is broadcast along."""
        value = frame.value
        shape = (1,) * (len(value) - self.type(index).rank) + self.type(index).shape
        return lambda factor: shape[frame.axes[factor]] == value[frame.axes[factor]]

    def gives_up(self, cost: int, here: int) -> bool:
        """Whether a message ends for the elements that the other operands' way into its order would move."""
        if cost < here:
            return False
        self.made.choices.add("eager")
        return not self.manner.eager

    def orders(self, indices: Sequence[int]) -> Iterator[int]:
        """Those of some operands that exist under another order; one of each order."""
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
        """Append the node's replacement, of one result; its epilogue, which has no operands, stays."""
        return self.site.emit(op, *inputs, epilogue=self.site.epilogue)[0]

    def result(self, source: Value, arrangement: Arrangement) -> Operand:
        """What stands for the node's result, whose elements are those of `source`."""
        old = self.node.outputs[0]
        origin = next(m.origin for m in self.inputs if isinstance(m, Arranged))
        message = Arranged(source, arrangement, old.type, old.name, origin, self.made)
        return message.realize(self.site.builder) if arrangement.is_view else message


# What stands for the node's results, or why it needs its operands in their own order.
Answer = Operand | str
Rule = Callable[[ReorderedNode], Answer]
RULES: dict[type[Op], Rule] = {}


def layout_rule(*op_types: type[Op]) -> Callable[[Rule], Rule]:
    """Decorator: the rule of these operators and their subclasses."""

    def decorate(rule: Rule) -> Rule:
        for op_type in op_types:
            if op_type in RULES:
                raise ValueError(f"{op_type.name} has a rule for orders already")
            RULES[op_type] = rule
        return rule

    return decorate
