"""Bands of a layer: some rows of its result, computed by the same operator and constants on a smaller image.

Rows of padding are rows of the band's input (see `microfold.ops.rows`), so that kernels compute a band like
any other layer.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from microfold.analysis.ranges import Ranges
from microfold.ir.node import Node, Value
from microfold.ir.op import Pattern
from microfold.ir.types import Array
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.rows import ROWS, Band, OperandRows, Rows, band


class LayerBand(Struct, frozen=True, eq=False):
    """Some rows of a layer's result.

    Attributes:
        layer: the smaller layer that computes these rows. Its constants are cut to the rows that it reads.
        rows: rows of the result, from the first one to before the second one.
        operands: rows that the band reads of each input of the node. None if it reads the whole input, or if
            the input is absent.
    """

    layer: LayerContext
    rows: Rows
    operands: tuple[OperandRows | None, ...]

    @property
    def reading_rows(self) -> LayerBand:
        """Band with an indirection buffer as its first operand, see `LayerContext.indirection_buffer`."""
        layer = self.layer.remembered("row_table", lambda: replace(self.layer, indirection_buffer=True))
        return replace(self, layer=layer)


def layer_band(layer: LayerContext, rows: Rows) -> LayerBand | str:
    """Return the band of a layer that computes some rows of its result, or the reason why no band exists."""
    node = layer.node
    types = [value.type if value is not None else None for value in node.inputs]
    found = band(node.op, types, rows)
    if isinstance(found, str):
        return found
    for step in node.epilogue:
        if step.operands or step.op.pattern is not Pattern.ELEMENTWISE:
            return f"its epilogue has {step.op.name}, which needs more than one input element"
    inputs, constants = _inputs(layer, found)
    x = node.output.type
    shape = (*x.shape[:ROWS], rows[1] - rows[0], *x.shape[ROWS + 1 :])
    output = Value(node.output.name, x.with_shape(shape))
    smaller = Node(found.op, inputs, (output,), node.epilogue)
    ranges = _ranges(layer.ranges, node, smaller, found.operands) if layer.ranges is not None else None
    made = replace(layer, node=smaller, constants=constants, ranges=ranges, parent_node=layer.whole)
    return LayerBand(made, rows, found.operands)


def remembered_band(layer: LayerContext, rows: Rows) -> LayerBand | str:
    """Return the band as `layer_band` does, with one layer object for all bands that are the same layer.

    These bands then share the cached results of that layer.
    """
    found = layer_band(layer, rows)
    if isinstance(found, str):
        return found
    parts: list[Hashable] = []
    for value, part in zip(layer.node.inputs, found.operands, strict=True):
        # Constants differ between bands. Kernels see only the number of rows of a computed input.
        parts.append(
            part if part is None or value in layer.constants else (part.count, part.padded, part.fill)
        )
    key = remembered_band, found.layer.node.op, rows[1] - rows[0], (*parts,)
    return replace(found, layer=layer.remembered(key, lambda: found.layer))


def offered(kernel: Kernel, layer: LayerContext) -> Sequence[Kernel]:
    """Return the variants of a kernel for a layer that it supports. Repeated calls return the same objects.

    A layer with an indirection buffer leaves only the variants that can read it.
    """

    def find() -> list[Kernel]:
        return [
            v for v in kernel.variants(layer) if not layer.indirection_buffer or v.supports_indirection(layer)
        ]

    return layer.remembered((offered, kernel), find)


def lowered(kernel: Kernel, layer: LayerContext) -> KernelCall:
    """Return the cached call of a layer, whether its first input is an image or an indirection buffer."""

    def find() -> KernelCall:
        return lower_by_rows(kernel, layer) if layer.indirection_buffer else kernel.lower(layer)

    return layer.remembered((lowered, kernel), find)


def lower_by_rows(kernel: Kernel, layer: LayerContext) -> KernelCall:
    """Return a call whose first input is an indirection buffer.

    The buffer has the addresses of the rows of one image, in order. The rows need not be contiguous.
    `Kernel.supports_indirection` must be true for the layer. Kernels find the choice in
    `LayerContext.indirection_buffer`, templates in the spec value ``indirection_buffer``.
    """
    call = kernel.lower(replace(layer, indirection_buffer=True))
    function = replace(call.function, spec=(*call.function.spec, ("row_table", True)))
    parameters = {name: p for name, p in call.parameters.items() if name not in kernel.pitch_fields}
    return replace(call, function=function, parameters=parameters)


def first_row_held(kernel: Kernel, layer: LayerContext, row: int) -> int:
    """Return the first input row that a kernel may still read when it writes a given output row.

    The output row may overlap earlier input rows in memory, but no other row that the call reads. Input rows
    must not overlap each other. `Kernel.supports_indirection` must be true, and the call must use an
    indirection buffer.
    """
    first = row - row % kernel.row_release_granularity(layer)
    types = [value.type if value is not None else None for value in layer.node.inputs]
    # Later output rows read no earlier input rows than this one.
    needed = band(layer.node.op, types, (first, first + 1))
    read = needed.operands[0] if isinstance(needed, Band) else None
    return read.start if read is not None else 0


def _inputs(layer: LayerContext, found: Band) -> tuple[tuple[Value | None, ...], dict[Value, Array]]:
    """Return the inputs of the band's node, and the arrays of the constant ones."""
    made: dict[tuple[Value, OperandRows | None], Value] = {}
    constants: dict[Value, Array] = {}
    inputs: list[Value | None] = []
    for value, rows in zip(layer.node.inputs, found.operands, strict=True):
        if value is None:
            inputs.append(None)
            continue
        array = layer.constants.get(value)
        # A value that the node reads twice stays one value.
        own = made.setdefault((value, rows), Value(value.name, rows.type(value.type)) if rows else value)
        inputs.append(own)
        if array is not None:
            constants[own] = rows.take(array) if rows is not None else array
    return tuple(inputs), constants


def _ranges(whole: Ranges, node: Node, smaller: Node, operands: tuple[OperandRows | None, ...]) -> Ranges:
    """Return the ranges of the band: a range that is proved for the layer holds for each of its rows.

    The accumulators keep their bounds, because windows at the image border read the same elements from rows
    of padding. The range of a padded input also includes the fill of these rows.
    """
    values = {smaller.output: whole.values[node.output]} if node.output in whole.values else {}
    for value, own, rows in zip(node.inputs, smaller.inputs, operands, strict=True):
        if value is None or own is None or value not in whole.values:
            continue
        values[own] = whole.values[value]
        if rows is not None and rows.padded:
            values[own] = values[own].union(int(rows.fill), int(rows.fill))
    return whole.moved(node, smaller, values)
