"""Programs whose outputs lie over rows of inputs, as far as kernels that find rows by addresses allow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.kernels.band import LayerBand, first_row_held, layer_band, lower_by_rows
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.movement.copy import Copy
from microfold.ops.rows import ROWS, OperandRows, row_pitch
from microfold.options import Options
from microfold.plan.arena import ArenaPlan
from microfold.plan.overlap import align
from microfold.program import Buffer, Layer, Program
from microfold.target import Target
from microfold.verification import verify
from tests.kernels.bands import TEMPLATES, run_program


class RowsUnderOutput(Struct, frozen=True, eq=False):
    """All rows of a layer's result in one call, written over rows of its input.

    Attributes:
        layer: the node whose rows they are.
        part: what is called: the layer without padding above and below.
        rows: of the input, with the padding.
        offsets: where they lie, from the start of the output on.
    """

    layer: LayerContext
    part: LayerBand
    kernel: Kernel
    rows: OperandRows
    offsets: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of the output and all rows."""
        return max(self.part.layer.node.output.type.nbytes, self.offsets[-1] + self._pitch)

    @property
    def function(self) -> CFunction:
        """Puts the rows where they belong."""
        return CFunction(
            "row_places.c.j2",
            "row_places",
            (("offsets", self.offsets), ("pitch", self._pitch)),
            library=TEMPLATES,
        )

    @property
    def _pitch(self) -> int:
        return row_pitch(self.part.layer.node.operands[0].type)


def rows_under_output(kernel: Kernel, layer: LayerContext, variant: int = 0) -> RowsUnderOutput | None:
    """None if the kernel does not compute all rows in one call, or no row may lie under the output."""
    height = layer.node.output.type.shape[ROWS]
    part = layer_band(layer, (0, height))
    if isinstance(part, str) or kernel.supports(part.layer) is not None:
        return None
    offered = kernel.variants(part.layer)
    chosen = offered[min(variant, len(offered) - 1)]
    node = part.layer.node
    if not chosen.supports_indirection(part.layer) or chosen.data_inputs(part.layer) != (0,):
        return None
    rows = part.operands[0]
    assert rows is not None
    offsets = _offsets(chosen, part.layer)
    if offsets[0] >= node.output.type.nbytes:
        return None
    return RowsUnderOutput(layer, part, chosen, rows, offsets)


def _offsets(kernel: Kernel, layer: LayerContext) -> tuple[int, ...]:
    """The first place for each row of the input that only output rows lie over which may do so."""
    node = layer.node
    x, out = node.operands[0].type, node.output.type
    held = [first_row_held(kernel, layer, row) for row in range(out.shape[ROWS])]
    alignment = x.dtype.itemsize
    offsets: list[int] = []
    behind = 0
    for row in range(x.shape[ROWS]):
        over = next((r for r, first in enumerate(held) if first > row), len(held))
        place = max(over * row_pitch(out), behind)
        offsets.append(place + -place % alignment)
        behind = offsets[-1] + row_pitch(x)
    return tuple(offsets)


def assert_rows_are_free(cases: Sequence[RowsUnderOutput], core: Target, runs: int) -> None:
    """Results are those of the layers, for `runs` input sets."""
    given: list[list[Array]] = [[] for _ in range(runs)]
    expected: list[list[Array]] = [[] for _ in range(runs)]
    for case in cases:
        node = case.layer.node
        for run, (x,) in enumerate(verify.input_sets([node.operands[0].type], runs)):
            tensors = {v: Tensor(v.type, array) for v, array in case.layer.constants.items()}
            tensors[node.operands[0]] = Tensor(node.operands[0].type, x)
            given[run].append(case.rows.take(x))
            expected[run].append(node.evaluate(tensors)[0].data)
    for run, outputs in enumerate(run_program(_program(cases, core), given)):
        for case, want, output in zip(cases, expected[run], outputs, strict=True):
            halves = want.dtype == np.float16
            tolerance = verify.HALF_TOLERANCE if halves else verify.FLOAT_TOLERANCE
            with np.errstate(invalid="ignore"):  # of equal infinities
                difference = verify.compare(output.reshape(want.shape), want, tolerance)
            assert difference is None, (case.kernel.name, case.layer.node, run, difference)


def _program(cases: Sequence[RowsUnderOutput], core: Target) -> Program:
    """Its inputs are the padded images; for each a layer scatters the rows, and one computes the result."""
    inputs: list[Buffer] = []
    outputs: list[Buffer] = []
    layers: list[Layer] = []
    constants: dict[Value, Array] = {}
    size = 0

    def place(bytes: int) -> int:
        nonlocal size
        offset = size
        size = align(offset + bytes)
        return offset

    def add(node: Node, kernel: Kernel, call: KernelCall, read: Buffer, *written: Buffer) -> None:
        scratch = place(call.scratch) if call.scratch else None
        layers.append(
            Layer(
                index=len(layers),
                name=f"layer_{len(layers)}",
                node=node,
                kernel=kernel,
                call=call,
                work=(node,),
                macs=0,
                estimated_instructions=None,
                estimated_cycles=None,
                inputs=(read,),
                outputs=written,
                scratch=scratch,
            )
        )

    for number, case in enumerate(cases):
        part = case.part.layer
        x, out = part.node.operands[0], part.node.output
        image = Buffer(Value(f"image_{number}", x.type), "arena", place(x.type.nbytes))
        count = len(case.offsets)
        table = Value(f"table_{number}", TensorType(DType.INT64, (count,)))  # of addresses of any machine
        places = Value(f"places_{number}", TensorType(DType.INT8, (case.size,)))
        start = place(case.size)
        addresses = Buffer(table, "arena", place(table.type.nbytes))
        scatter = Node(Copy(), (image.value,), (table, places))
        call = KernelCall(case.function)
        add(scatter, KERNELS[0], call, image, addresses, Buffer(places, "arena", start))
        result = Buffer(out, "arena", start)
        add(part.node, case.kernel, lower_by_rows(case.kernel, part), addresses, result)
        inputs.append(image)
        outputs.append(result)
        constants |= part.constants
    graph = Graph(
        "rows",
        tuple(buffer.value for buffer in inputs),
        tuple(buffer.value for buffer in outputs),
        tuple(layer.node for layer in layers),
        constants,
    )
    return Program(
        name="rows",
        source=graph,
        graph=graph,
        target=core,
        options=Options(),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        layers=tuple(layers),
        state=(),
        arena=ArenaPlan({}, size, 0),
        flash=0,
    )
