"""Rule of agnostic operators, which process all elements alike in any order."""

from __future__ import annotations

from collections.abc import Hashable

from microfold.ir.op import Op, Pattern
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.transform.layout.propagation.frame import Frame
from microfold.transform.layout.propagation.rule import Answer, ReorderedNode


def is_elementwise(op: Op) -> bool:
    """Return whether each result element is computed from one element of each operand, with broadcasting."""
    # The result shape of BroadcastTo is an attribute, which depends on the order.
    return op.pattern in (Pattern.ELEMENTWISE, Pattern.BROADCAST) and not isinstance(op, BroadcastTo)


def elementwise(place: ReorderedNode) -> Answer:
    """Use the order of the operand, of the result's shape, for which the fewest elements have to move."""
    indices = range(len(place.node.inputs))
    if any(place.node.inputs[index] is None for index in indices):
        return "an operand is absent"
    best: tuple[int, Frame] | None = None
    for index in place.orders(indices):
        frame = _frame(place, index)
        if frame is not None:
            cost = sum(place.cost(other, frame) for other in indices)
            best = (cost, frame) if best is None or cost < best[0] else best
    if best is None:
        return "it broadcasts the operand that exists in another order"
    cost, frame = best
    here = sum(place.type(index).size for index in indices if place.arranged(index) is not None)
    if place.gives_up(cost, here):
        return f"reordering its other operands would move {cost} elements to save {here}"
    source = place.emit(place.op, *(place.bring(index, frame) for index in indices))
    return place.result(source, frame.arrangement)


def _frame(place: ReorderedNode, index: int) -> Frame | None:
    """Return the frame of an operand without broadcasting, split so that all operands have whole axes."""
    if place.arranged(index) is None or place.type(index).shape != place.out.shape:
        return None
    frame = place.frame(index)
    if frame is None:
        return None
    extends = [place.extends(other, frame) for other in range(len(place.node.inputs))]

    def key(factor: int) -> Hashable:
        return tuple(has(factor) for has in extends) if frame.arrangement.sizes[factor] != 1 else None

    return frame.regrouped(key)
