"""Message that a value exists in another order of its elements."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct, field

from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import GraphBuilder, Pending
from microfold.ir.types import Shape, TensorType
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.transpose import Transpose
from microfold.transform.layout.propagation.arrangement import Arrangement, group


class SweepResults(Struct, frozen=True, eq=False):
    """Results of a sweep so far.

    Attributes:
        values: reordered values by (source, simplified arrangement, shape).
        owners: for each reordering node, the node of the old graph that requires it.
        choices: fields of the manner that some decision depended on.
    """

    values: dict[tuple[Value, Arrangement, Shape], Value] = field(
        default_factory=dict[tuple[Value, Arrangement, Shape], Value]
    )
    owners: dict[Node, Node] = field(default_factory=dict[Node, Node])
    choices: set[str] = field(default_factory=set[str])

    def own(self, builder: GraphBuilder, start: int, owner: Node) -> None:
        """Assign an owner to all nodes after the first `start` ones that have none."""
        for node in builder.nodes[start:]:
            self.owners.setdefault(node, owner)


class Arranged(Pending, frozen=True):
    """Value that has the elements of `source` in another order.

    Attributes:
        type: type that readers expect; quantisation must be per tensor.
        origin: node that the message comes from.
        made: results of the sweep; a value that several messages need is reordered once.
        spelling: operator that reorders the source's elements, if it is more specific than a transpose.
    """

    source: Value
    arrangement: Arrangement
    type: TensorType
    name: str
    origin: Node
    made: SweepResults
    spelling: Op | None = None

    def realize(self, builder: GraphBuilder) -> Value:
        start = len(builder.nodes)
        if self.spelling is not None:
            value = builder.emit(self.spelling, [self.source], [self.name])[0]
        else:
            value = put_in_order(
                builder, self.source, self.arrangement, self.type.shape, self.name, self.made
            )
        self.made.own(builder, start, self.origin)
        return value


def put_in_order(
    builder: GraphBuilder,
    source: Value,
    arrangement: Arrangement,
    shape: Shape,
    name: str,
    made: SweepResults,
) -> Value:
    """Emit the nodes that reorder the source: at most one transpose, between reshapes if necessary."""
    simple = arrangement.simplified()
    key = (source, simple, shape)
    if key not in made.values:
        made.values[key] = _emit(builder, source, simple, shape, name)
    return made.values[key]


def _emit(builder: GraphBuilder, source: Value, arrangement: Arrangement, shape: Shape, name: str) -> Value:
    if arrangement.is_view:
        return _reshaped(builder, source, shape, name)
    permutation = as_permutation(source.type.shape, arrangement, shape)
    if permutation is not None:
        return builder.emit(Transpose(permutation), [source], [name])[0]
    split = _reshaped(builder, source, arrangement.sizes, name)
    (moved,) = builder.emit(Transpose(arrangement.order), [split], [name])
    return _reshaped(builder, moved, shape, name)


def _reshaped(builder: GraphBuilder, value: Value, shape: Shape, name: str) -> Value:
    return value if value.type.shape == shape else builder.emit(Reshape(shape), [value], [name])[0]


@lru_cache(1 << 12)  # sweeps ask for the same few arrangements at every node
def as_permutation(source: Shape, arrangement: Arrangement, shape: Shape) -> tuple[int, ...] | None:
    """Return the arrangement as one transpose of whole axes, or None."""
    split = arrangement.simplified().split_source(source)
    split = split.split_value(shape) if split is not None else None
    if split is None or len(source) != len(shape):
        return None
    given = {
        tuple(place for place in places if split.sizes[place] != 1): axis
        for axis, places in enumerate(group(split.sizes, source))
        if source[axis] != 1
    }
    units = iter([axis for axis, extent in enumerate(source) if extent == 1])
    permutation: list[int] = []
    for extent, places in zip(shape, group(split.value_sizes, shape), strict=True):
        factors = tuple(split.order[place] for place in places if split.value_sizes[place] != 1)
        axis = next(units, None) if extent == 1 else given.get(factors)
        if axis is None:
            return None
        permutation.append(axis)
    return tuple(permutation)
