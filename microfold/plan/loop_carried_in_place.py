"""In-place updates of loop-carried values: outputs of a loop body that may overwrite their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.views import Views
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import overlap_of


def whole_outputs(graph: Graph) -> dict[int, Value]:
    """Return the outputs that own all of their storage: the value that owns it, by output index."""
    views = Views(graph)
    roots = [views[value].root for value in graph.outputs]
    computed = {value for node in graph.nodes for value in node.outputs}
    return {
        index: root
        for index, (value, root) in enumerate(zip(graph.outputs, roots, strict=True))
        if root in computed and roots.count(root) == 1 and root.type.nbytes == value.type.nbytes
    }


def updated_in_place(graph: Graph, kernels: Sequence[tuple[LayerContext, Kernel]]) -> dict[int, Value]:
    """Return the outputs of a loop body that may be computed in place of the parameters of the same indices.

    No call may read the parameter after the call that first writes the output. That call itself may read it
    if its kernel can work in place.

    Args:
        graph: loop body.
        kernels: layer and kernel of all its computing nodes, in order.

    Returns:
        The values that own the outputs' storage, by output index.
    """
    views = Views(graph)
    written: dict[Value, int] = {}
    read: dict[Value, int] = {}
    for index, (layer, _) in enumerate(kernels):
        for value in layer.node.outputs:
            written.setdefault(views[value].root, index)
        for value in layer.node.operands:
            read[views[value].root] = index
    return {
        index: root
        for index, root in whole_outputs(graph).items()
        if _may_replace(graph.inputs[index], root, written, read, kernels, views)
    }


def _may_replace(
    parameter: Value,
    root: Value,
    written: Mapping[Value, int],
    read: Mapping[Value, int],
    kernels: Sequence[tuple[LayerContext, Kernel]],
    views: Views,
) -> bool:
    first, last = written[root], read.get(parameter, -1)
    if last != first:
        return last < first
    layer, kernel = kernels[first]
    node = layer.node
    if any(node.inputs[i] is parameter and node.outputs[o] is root for i, o in kernel.replaces(layer)):
        return node.operands.count(parameter) == 1
    if views[node.outputs[0]].root is not root:
        return False
    roots = [views[value].root if value is not None else None for value in node.inputs]
    if roots.count(parameter) != 1 or len(node.operands) != sum(value is not None for value in node.inputs):
        return False
    index = roots.index(parameter)
    if index not in kernel.data_inputs(layer):
        return False
    value = node.inputs[index]
    assert value is not None
    shift = views[node.outputs[0]].offset - views[value].offset
    distance = overlap_of(kernel, layer, index)
    return distance + shift <= 0 if distance is not None else shift == 0 and kernel.in_place(layer, index)
