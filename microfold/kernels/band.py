"""A band of a layer's rows is a layer of its own: the same operator and constants on a smaller image.

Rows of padding are rows of its input (see `microfold.ops.rows`), so no kernel needs to know of bands.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from microfold.analysis.ranges import Ranges
from microfold.ir.node import Node, Value
from microfold.ir.op import Pattern
from microfold.ir.types import Array
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.rows import ROWS, Band, OperandRows, Rows, band, row_pitch
from microfold.support.frozen import frozen


@frozen(eq=False)
class LayerBand:
    """Some rows of a layer's result.

    Attributes:
        layer: computes them; its constants are those that it reads.
        rows: of the result.
        operands: the rows of each of the node's inputs that it reads; None: all of it, or it is absent.
            Constants are cut already.
    """

    layer: LayerContext
    rows: Rows
    operands: tuple[OperandRows | None, ...]

    @property
    def reading_rows(self) -> LayerBand:
        """The same, given the address of each row of its first operand."""
        layer = self.layer.remembered("row_table", lambda: replace(self.layer, row_table=True))
        return replace(self, layer=layer)


def layer_band(layer: LayerContext, rows: Rows) -> LayerBand | str:
    """The band of a layer that computes some rows of its result, or the reason why there is none."""
    node = layer.node
    types = [value.type if value is not None else None for value in node.inputs]
    found = band(node.op, types, rows)
    if isinstance(found, str):
        return found
    for step in node.epilogue:
        if step.operands or step.op.pattern is not Pattern.ELEMENTWISE:
            return f"its epilogue has {step.op.name}, which needs more than the element at hand"
    inputs, constants = _inputs(layer, found)
    x = node.output.type
    shape = (*x.shape[:ROWS], rows[1] - rows[0], *x.shape[ROWS + 1 :])
    output = Value(node.output.name, x.with_shape(shape))
    smaller = Node(found.op, inputs, (output,), node.epilogue)
    ranges = _ranges(layer.ranges, node, smaller, found.operands) if layer.ranges is not None else None
    made = replace(layer, node=smaller, constants=constants, ranges=ranges, band_of=layer.whole)
    return LayerBand(made, rows, found.operands)


def remembered_band(layer: LayerContext, rows: Rows) -> LayerBand | str:
    """The same; bands that are the same layer have one object for it, with all that is remembered of it."""
    found = layer_band(layer, rows)
    if isinstance(found, str):
        return found
    parts: list[Hashable] = []
    for value, part in zip(layer.node.inputs, found.operands, strict=True):
        # Constants are cut; of what is computed, kernels only see how many rows they read.
        parts.append(
            part if part is None or value in layer.constants else (part.count, part.padded, part.fill)
        )
    key = remembered_band, found.layer.node.op, rows[1] - rows[0], (*parts,)
    return replace(found, layer=layer.remembered(key, lambda: found.layer))


def unsupported_rows(kernel: Kernel, part: LayerBand) -> str | None:
    """The reason if the kernel cannot compute a band whose rows lie behind each other.

    Rows then start wherever the ones before end, and the kernel needs them aligned.
    """
    alignment = kernel.row_alignment(part.layer)
    node = part.layer.node
    read = [node.inputs[i] for i in kernel.data_inputs(part.layer) if part.operands[i] is not None]
    for value in (*read, node.output):
        assert value is not None
        pitch = row_pitch(value.type)
        if pitch % alignment:
            return f"rows must start at multiples of {alignment} bytes; those of %{value.name} have {pitch}"
    return None


def offered(kernel: Kernel, layer: LayerContext) -> Sequence[Kernel]:
    """Return the variants of a kernel that can compute a layer which it supports; always the same objects."""

    def find() -> list[Kernel]:
        return [v for v in kernel.variants(layer) if not layer.row_table or v.reads_rows(layer)]

    return layer.remembered((offered, kernel), find)


def lowered(kernel: Kernel, layer: LayerContext) -> KernelCall:
    """The call of a layer, whether it is given an image or the addresses of its rows."""

    def find() -> KernelCall:
        return lower_by_rows(kernel, layer) if layer.row_table else kernel.lower(layer)

    return layer.remembered((lowered, kernel), find)


def lower_by_rows(kernel: Kernel, layer: LayerContext) -> KernelCall:
    """The call with a table of addresses as its first input: those of the rows of one image, in their order.

    The rows need not lie behind each other. For layers of which the kernel says that it `reads_rows`. What
    the layer says to the kernel, `row_table`, its template finds under the same name.
    """
    call = kernel.lower(replace(layer, row_table=True))
    function = replace(call.function, spec=(*call.function.spec, ("row_table", True)))
    parameters = {name: p for name, p in call.parameters.items() if name not in kernel.pitch_fields}
    return replace(call, function=function, parameters=parameters)


def first_row_held(kernel: Kernel, layer: LayerContext, row: int) -> int:
    """The first row of its input that a kernel may still read when it writes a row of its output.

    The output row may lie over any input row in front of that one, and over no other that the call reads.
    Input rows must not lie over each other. For layers of which the kernel says that it `reads_rows`, and
    calls that are given a table of their addresses.
    """
    first = row - row % kernel.rows_held(layer)
    types = [value.type if value is not None else None for value in layer.node.inputs]
    # Rows further down need none that lie higher.
    needed = band(layer.node.op, types, (first, first + 1))
    read = needed.operands[0] if isinstance(needed, Band) else None
    return read.start if read is not None else 0


def _inputs(layer: LayerContext, found: Band) -> tuple[tuple[Value | None, ...], dict[Value, Array]]:
    """What the band reads, and which of it is constant."""
    made: dict[tuple[Value, OperandRows | None], Value] = {}
    constants: dict[Value, Array] = {}
    inputs: list[Value | None] = []
    for value, rows in zip(layer.node.inputs, found.operands, strict=True):
        if value is None:
            inputs.append(None)
            continue
        array = layer.constants.get(value)
        # One that is read twice stays one.
        own = made.setdefault((value, rows), Value(value.name, rows.type(value.type)) if rows else value)
        inputs.append(own)
        if array is not None:
            constants[own] = rows.take(array) if rows is not None else array
    return tuple(inputs), constants


def _ranges(whole: Ranges, node: Node, smaller: Node, operands: tuple[OperandRows | None, ...]) -> Ranges:
    """What is proved of the layer holds for every row, so for the band's.

    Sums over windows at the edges of the image are those over rows of padding: their bounds stay. But what
    an input holds includes the fill of these rows.
    """
    values = {smaller.output: whole.values[node.output]} if node.output in whole.values else {}
    for value, own, rows in zip(node.inputs, smaller.inputs, operands, strict=True):
        if value is None or own is None or value not in whole.values:
            continue
        values[own] = whole.values[value]
        if rows is not None and rows.padded:
            values[own] = values[own].union(int(rows.fill), int(rows.fill))
    return whole.moved(node, smaller, values)
