"""Computes the groups of a convolution in separate parts if that is faster than one dense convolution.

    %y: int8[1,8,8,8] = conv2d(%x, %w) {...}
        ->
    %c: int8[1,8,8,4] = strided_slice(%x) {begin=(0, 0, 0, 0), size=(1, 8, 8, 4), ...}
    %a: int8[1,8,8,4] = conv2d(%c, %v) {...}
    ...
    %y: int8[1,8,8,8] = concatenate(%a, %b) {axis=3}

No kernel computes groups. `expand_grouped_conv2d` makes them dense with zero weights, which multiplies the
work by the number of groups. A part, which may hold several groups, is cut out of the image: it costs its own
products, a slice, and a copy in the concatenation. The kernels of the target provide these costs
(`PassContext.node_cost`).

Parts need RAM in addition to the image and the result. The pass therefore splits a convolution only if the
time saved is worth it, and never if a RAM limit can only be met without splits. Every sum keeps its products,
so that the bits of integers stay the same.
"""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node
from microfold.ir.rewrite import GraphBuilder, Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import Array, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.image import refuses_layout
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.passes.context import NodeCost, PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.simplify.expand_grouped_conv2d import dense_filters

# Maximum cycles of the parts, relative to one dense convolution, and relative to a split into fewer
# parts. The margin pays for RAM; estimates of small convolutions may be off by 20 %.
_WORTH = 0.9
_WORTH_MORE = 0.8


@function_pass(opt_level=3)
def split_grouped_conv2d(graph: Graph, context: PassContext) -> Graph:
    """Compute groups of convolutions on slices of the image, if that is profitable."""

    def split(site: RewriteSite[None]) -> Replacement:
        node, image, weights = site.node, site.value(0), site.value(1)
        assert isinstance(node.op, Conv2D)
        assert image is not None
        assert weights is not None
        layout = refuses_layout(node.op)
        if layout is not None:
            context.declined(node, layout)
            return None
        if image.type.shape[3] == weights.type.shape[3]:
            return None
        constants = [site.array(value) for value in node.inputs[1:] if value is not None]
        reason = _why_not(site, constants)
        groups = image.type.shape[3] // weights.type.shape[3]
        parts, costs = 1, dict[int, float]()
        if reason is None:
            parts, costs = _best(site, image, groups, context)
        if reason is None and context.node_cost is None:
            reason = f"{groups} groups as one: the costs of kernels are unknown"
        elif reason is None and 1 not in costs:
            reason = f"{groups} groups as one: no kernel computes them"
        elif reason is None and parts == 1:
            taken = ", ".join(f"{cost:.0f} in {count}" for count, cost in costs.items() if count > 1)
            reason = f"{groups} groups as one need about {costs[1]:.0f} cycles; {taken} parts"
        if reason is None and context.save_ram:
            reason = f"{groups} groups as one: {parts} parts would need more RAM than is allowed"
        if reason is not None:
            context.declined(node, reason)
            return None
        saved = f"about {costs[parts]:.0f} cycles instead of {costs[1]:.0f}"
        context.fired(node, f"{groups} groups in {parts} parts: {saved}")
        return _emit(site, image, parts)

    return forward_rewrite(graph, {Conv2D: split})


def may_split(graph: Graph) -> bool:
    """Return whether the pass may split groups of this graph or of its subgraphs."""
    return any(isinstance(node.op, Conv2D) and _has_groups(node) for node in graph.nodes) or any(
        may_split(body) for body in graph.subgraphs.values()
    )


def _has_groups(node: Node) -> bool:
    image, weights = node.operands[0].type, node.operands[1].type
    # If channels are not last, ConvertLayout decides whether groups can be split.
    layout = refuses_layout(node.op)
    return layout is not None or image.shape[3] != weights.shape[3]


def _why_not(site: RewriteSite[None], constants: list[Array | None]) -> str | None:
    if site.node.epilogue:
        return "it has an epilogue"
    if any(array is None for array in constants):
        return "a grouped convolution whose filter or bias is not constant"
    if constants[0] is not None and constants[0].shape[3] == 1:
        return "groups of one channel are a depthwise convolution"
    return None


def _best(
    site: RewriteSite[None], image: Value, groups: int, context: PassContext
) -> tuple[int, dict[int, float]]:
    """Return the number of parts with the fewest cycles (1 if none saves enough), and the cycles of each."""
    cost = context.node_cost
    if cost is None:
        return 1, {}
    totals: dict[int, float] = {}
    for parts in range(1, groups + 1):
        if groups % parts == 0:
            total = _cost(site, image, parts, cost)
            if total is not None:
                totals[parts] = total
    if 1 not in totals:
        return 1, totals
    best = 1
    for parts, total in totals.items():
        if total < (_WORTH if best == 1 else _WORTH_MORE) * totals[best]:
            best = parts
    ways = {f"{parts} parts": parts for parts in totals}
    taken = context.choose(
        site.node, f"{best} parts", lambda: {way: totals[parts] for way, parts in ways.items()}
    )
    return ways[taken], totals


def _cost(site: RewriteSite[None], image: Value, parts: int, cost: NodeCost) -> float | None:
    """Estimate the cycles of all parts, all computed like the first one. None if a cost is unknown."""
    node, output = site.node, site.node.output.type
    filters, depth = output.shape[3] // parts, image.type.shape[3] // parts
    cut, rows = _cut(image.type, parts, 0), slice(0, filters)
    source = image if parts == 1 else Value("part", cut.infer(image.type))
    constants: dict[Value, Array] = {}
    operands: list[Value | None] = [source]
    for index, value in enumerate(node.inputs[1:], 1):
        array, given = site.array(value), site.value(index)
        if array is None or given is None:
            operands.append(None)
            continue
        own = array[rows] if index > 1 else dense_filters(array[rows], depth)
        constant = Value(given.name, _part_type(given.type, own, rows))
        operands.append(constant)
        constants[constant] = own
    convolution = make_node(node.op, operands, ["part_result"])
    nodes = [convolution]
    if parts > 1:
        (result,) = convolution.outputs
        nodes = [
            Node(cut, (image,), (source,)),
            convolution,
            make_node(Concatenate(3), [result] * parts, ["whole"]),
        ]
    graph = Graph("part", (image,), nodes[-1].outputs, tuple(nodes), constants)
    costs = [cost(each, graph) for each in nodes]
    times = [1.0] if parts == 1 else [parts, parts, 1.0]
    known = [each * count for each, count in zip(costs, times, strict=True) if each is not None]
    return sum(known) if len(known) == len(costs) else None


def _emit(site: RewriteSite[None], image: Value, parts: int) -> Value:
    node, builder = site.node, site.builder
    name = node.output.name
    filters = node.output.type.shape[3] // parts
    results: list[Value] = []
    for part in range(parts):
        (source,) = builder.emit(_cut(image.type, parts, part), [image], [f"{image.name}_part{part}"])
        rows = slice(part * filters, (part + 1) * filters)
        operands = [_rows(builder, site.value(index), rows) for index in range(1, len(node.inputs))]
        results += builder.emit(node.op, [source, *operands], [f"{name}_part{part}"])
    (whole,) = builder.emit(Concatenate(3), results, [name])
    return whole


def _rows(builder: GraphBuilder, value: Value | None, rows: slice) -> Value | None:
    """Return some filters of a constant, or their biases, with their own scales."""
    if value is None:
        return None
    array = builder.constants[value][rows]
    return builder.constant(array, _part_type(value.type, array, rows), f"{value.name}_{rows.start}")


def _cut(image: TensorType, parts: int, part: int) -> StridedSlice:
    """Return the slice that a part reads from the image."""
    depth = image.shape[3] // parts
    return StridedSlice((0, 0, 0, part * depth), (*image.shape[:3], depth), (1, 1, 1, 1))


def _part_type(type: TensorType, array: Array, rows: slice) -> TensorType:
    """Return the type of some filters, or of their biases."""
    quant = type.quant
    if quant is not None and quant.axis == 0:
        quant = replace(quant, scales=quant.scales[rows], zero_points=quant.zero_points[rows])
    return TensorType(type.dtype, array.shape, quant)
