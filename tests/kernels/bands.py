"""Programs that compute images by bands of rows, which lie in the arena at addresses that are no better than
the kernels say they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.kernels.band import LayerBand, layer_band, lower_by_rows
from microfold.kernels.call import CFunction, KernelCall, Library
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.movement.copy import Copy
from microfold.ops.movement.slice_view import SliceView
from microfold.ops.rows import ROWS, OperandRows, row_pitch
from microfold.options import Options
from microfold.plan.arena import ArenaPlan
from microfold.plan.overlap import align
from microfold.program import Buffer, Layer, Program
from microfold.simulate.program import simulator
from microfold.target import Target
from microfold.verification import verify

# Rows of bands, one after the other, again and again: from the smallest that there may be.
HEIGHTS = ((1, 3), (2, 3), (3,), (4,), (5,))

TEMPLATES = Library("nothing", (), templates=Path(__file__).parent / "templates")


class BandedLayer(Struct, frozen=True, eq=False):
    """A layer that a kernel computes band by band.

    Attributes:
        kernels: a variant of the kernel for each band.
        images: the rows of each of the node's inputs that bands read rows of, with all the padding that some
            of them have; those that are constant are not among them.
        by_address: the kernel is given the addresses of the rows, which lie in the opposite order.
    """

    layer: LayerContext
    parts: tuple[LayerBand, ...]
    kernels: tuple[Kernel, ...]
    images: Mapping[int, OperandRows]
    by_address: bool = False

    @property
    def shared(self) -> tuple[int, ...]:
        """The other inputs that are not constant: every band reads all of them."""
        inputs = enumerate(self.layer.node.inputs)
        constants = self.layer.constants
        return tuple(i for i, v in inputs if v is not None and v not in constants and i not in self.images)

    @property
    def supports_indirection(self) -> bool:
        """Whether it may be `by_address`."""
        return all(
            k.supports_indirection(part.layer) for k, part in zip(self.kernels, self.parts, strict=True)
        )

    def by_addresses(self) -> BandedLayer:
        """The same `by_address`, for the same program: with values of its own."""
        found = [layer_band(self.layer, part.rows) for part in self.parts]
        parts = tuple(part for part in found if isinstance(part, LayerBand))
        return replace(self, parts=parts, by_address=True)


def banded(kernel: Kernel, layer: LayerContext, variant: int = 0) -> BandedLayer | str:
    """The layer in the smallest bands that the kernel computes; the last reason if there are none.

    Args:
        variant: which of the kernel's; the last one, if it has fewer for a band.
    """
    reason = ""
    for heights in HEIGHTS:
        parts = _parts(layer, heights)
        if isinstance(parts, str):
            reason = parts
            continue
        refused = next(filter(None, (kernel.supports(part.layer) for part in parts)), None)
        if refused is None:
            offers = [kernel.variants(part.layer) for part in parts]
            kernels = tuple(each[min(variant, len(each) - 1)] for each in offers)
            return BandedLayer(layer, parts, kernels, _images(layer, parts))
        reason = refused
    return reason


def _parts(layer: LayerContext, heights: Sequence[int]) -> tuple[LayerBand, ...] | str:
    height = layer.node.output.type.shape[ROWS]
    parts: list[LayerBand] = []
    start = 0
    while start < height:
        stop = min(start + heights[len(parts) % len(heights)], height)
        part = layer_band(layer, (start, stop))
        if isinstance(part, str):
            return part
        parts.append(part)
        start = stop
    return tuple(parts)


def _images(layer: LayerContext, parts: Sequence[LayerBand]) -> dict[int, OperandRows]:
    images: dict[int, OperandRows] = {}
    for index, value in enumerate(layer.node.inputs):
        found = [rows for part in parts if (rows := part.operands[index]) is not None]
        if value is None or not found or layer.array(index) is not None:
            continue
        height = value.type.shape[value.type.rank - 3]
        above = max(rows.above - rows.start for rows in found)
        below = max(rows.stop + rows.below - height for rows in found)
        images[index] = OperandRows(0, height, max(above, 0), max(below, 0), found[0].fill)
    return images


def assert_bands_are_images(cases: Sequence[BandedLayer], core: Target, runs: int) -> None:
    """Bands one after the other give the layers' results, for `runs` input sets."""
    sets = [_input_sets(case, runs) for case in cases]
    calls = [[array for each in sets for array in each[run].given] for run in range(runs)]
    program = band_program(cases, core)
    for run, outputs in enumerate(run_program(program, calls)):
        for case, each, output in zip(cases, sets, outputs, strict=True):
            actual = output.reshape(each[run].expected.shape)
            halves = case.layer.node.output.type.dtype is DType.FLOAT16
            tolerance = verify.HALF_TOLERANCE if halves else verify.FLOAT_TOLERANCE
            with np.errstate(invalid="ignore"):  # of equal infinities
                difference = verify.compare(actual, each[run].expected, tolerance)
            rows = [part.rows for part in case.parts]
            assert difference is None, (case.kernels[0].name, case.layer.node, rows, run, difference)


class _InputSet(Struct, frozen=True, eq=False):
    """What one case is given, and the result of the whole layer."""

    given: tuple[Array, ...]
    expected: Array


def _input_sets(case: BandedLayer, runs: int) -> list[_InputSet]:
    node, constants = case.layer.node, case.layer.constants
    values = [node.operands[index] for index in (*case.images, *case.shared)]
    found: list[_InputSet] = []
    for arrays in verify.input_sets([value.type for value in values], runs):
        tensors = {value: Tensor(value.type, array) for value, array in constants.items()}
        tensors |= {v: Tensor(v.type, array) for v, array in zip(values, arrays, strict=True)}
        padded = tuple(rows.take(array) for rows, array in zip(case.images.values(), arrays, strict=False))
        if case.by_address:
            padded = tuple(np.flip(image, ROWS) for image in padded)
        expected = node.evaluate(tensors)[0].data
        given = (*padded, *arrays[len(padded) :], np.full_like(expected, 1))
        found.append(_InputSet(given, expected))
    return found


def run_program(program: Program, calls: Sequence[Sequence[Array]]) -> list[tuple[Array, ...]]:
    """The outputs of each call, on the host or on the simulated core."""
    if not program.target.board:
        session = Session(program)
        return [session.run(*call) for call in calls]
    with simulator(program) as machine:
        return list(machine.run(calls, layers=False).outputs)


class _Builder:
    """Nodes, layers and places of one program."""

    def __init__(self) -> None:
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self.nodes: list[Node] = []
        self.layers: list[Layer] = []
        self.constants: dict[Value, Array] = {}
        self.size = 0

    def place(self, size: int, alignment: int) -> int:
        """An offset that is a multiple of the alignment, and of no larger power of two."""
        offset = -(-self.size // (2 * alignment)) * 2 * alignment + alignment
        self.size = offset + size
        return offset

    def add(self, number: int, case: BandedLayer) -> None:
        """A case: its images, slices of them, and bands, which write to one result."""
        node = case.layer.node
        images: dict[int, Buffer] = {}
        for index, rows in case.images.items():
            type = rows.type(node.operands[index].type)
            images[index] = self._place_image(case, Value(f"input_{number}_{index}", type))
        for index in case.shared:
            type = node.operands[index].type
            images[index] = self._place_image(case, Value(f"input_{number}_{index}", type))
        result = self._place_image(case, Value(f"result_{number}", node.output.type))
        # Every other band, then those between them: what one writes beyond its rows is seen.
        bands = list(zip(case.parts, case.kernels, strict=True))
        for part, kernel in (*bands[1::2], *bands[::2]):
            self._add_band(f"band_{number}_{part.rows[0]}", case, part, kernel, images, result)
        # No node is the whole result, so that it must be an input as well to have a place.
        self.inputs += [*images.values(), result]
        self.outputs.append(result)

    def _place_image(self, case: BandedLayer, value: Value) -> Buffer:
        return Buffer(value, "arena", self.place(value.type.nbytes, value.type.dtype.itemsize))

    def _add_band(
        self,
        name: str,
        case: BandedLayer,
        part: LayerBand,
        kernel: Kernel,
        images: Mapping[int, Buffer],
        result: Buffer,
    ) -> None:
        layer = part.layer
        node = layer.node
        call = lower_by_rows(kernel, layer) if case.by_address else kernel.lower(layer)
        read: list[Buffer] = []
        for index in kernel.data_inputs(layer):
            value, rows = node.inputs[index], part.operands[index]
            assert value is not None
            if index not in images:
                read.append(Buffer(value, "constant", 0))
                continue
            if rows is None:
                read.append(images[index])
                continue
            first = rows.start - rows.above + case.images[index].above
            if case.by_address:
                read.append(self._add_table(name, images[index], first, rows.count))
            else:
                read.append(self._view(value, images[index], first))
        # Cases of one layer read the same values, each from places of its own.
        shared = {index: images[index].value for index in case.shared}
        inputs = tuple(shared.get(index, value) for index, value in enumerate(node.inputs))
        node = Node(node.op, inputs, node.outputs, node.epilogue)
        self.nodes.append(node)
        self.constants |= layer.constants
        written = Buffer(node.output, "arena", result.offset + part.rows[0] * row_pitch(node.output.type))
        self._add_layer(name, node, kernel, call, read, written)

    def _view(self, value: Value, image: Buffer, first: int) -> Buffer:
        """The rows of an image from `first` on."""
        axis = value.type.rank - 3
        begin = tuple(first if i == axis else 0 for i in range(value.type.rank))
        self.nodes.append(Node(SliceView(begin, value.type.shape), (image.value,), (value,)))
        return Buffer(value, "arena", image.offset + first * row_pitch(value.type))

    def _add_table(self, name: str, image: Buffer, first: int, count: int) -> Buffer:
        """The addresses of rows of an image whose rows lie in the opposite order, and what finds them."""
        type, pitch = image.type, row_pitch(image.type)
        row = Value(f"{name}_first", type.with_shape((1, 1, *type.shape[ROWS + 1 :])))
        place = self._view(row, image, type.shape[ROWS] - 1 - first)
        table = Value(f"{name}_rows", TensorType(DType.INT64, (count,)))  # of addresses of any machine
        written = Buffer(table, "arena", self.place(table.type.nbytes, 8))
        spec = (("rows", count), ("pitch", pitch))
        function = CFunction("row_table.c.j2", "row_table", spec, library=TEMPLATES)
        node = Node(Copy(), (row,), (table,))
        self._add_layer(f"{name}_rows", node, KERNELS[0], KernelCall(function), [place], written)
        return written

    def _add_layer(
        self, name: str, node: Node, kernel: Kernel, call: KernelCall, read: Sequence[Buffer], written: Buffer
    ) -> None:
        self.layers.append(
            Layer(
                index=len(self.layers),
                name=name,
                node=node,
                kernel=kernel,
                call=call,
                work=(node,),
                macs=0,
                estimated_instructions=None,
                estimated_cycles=None,
                inputs=tuple(read),
                outputs=(written,),
                scratch=self.place(call.scratch, 8) if call.scratch else None,
            )
        )


def band_program(cases: Sequence[BandedLayer], core: Target) -> Program:
    """All cases in one program.

    Its inputs are those of each case: padded images, and what its result is before the bands are computed.
    """
    builder = _Builder()
    for number, case in enumerate(cases):
        builder.add(number, case)
    graph = Graph(
        "bands",
        tuple(buffer.value for buffer in builder.inputs),
        tuple(buffer.value for buffer in builder.outputs),
        tuple(builder.nodes),
        builder.constants,
    )
    return Program(
        name="bands",
        source=graph,
        graph=graph,
        target=core,
        options=Options(),
        inputs=tuple(builder.inputs),
        outputs=tuple(builder.outputs),
        layers=tuple(builder.layers),
        state=(),
        arena=ArenaPlan({}, align(builder.size), 0),
        flash=0,
    )
