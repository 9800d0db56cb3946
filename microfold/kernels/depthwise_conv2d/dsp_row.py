"""int8 depthwise convolution for cores with the DSP extension and an FPU, specialised for one shape.

Channels are expanded to planes as in `depthwise_conv2d.dsp`. Offsets are constants in the code, which saves
registers. FPU registers hold values that are needed rarely, so that weights can stay in core registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.dsp import plane_requantization
from microfold.kernels.depthwise_conv2d.dsp_row_schedule import (
    RECORD,
    RowSchedule,
    Taps,
    best_schedule,
    overlapped,
    rest_schedule,
)
from microfold.kernels.depthwise_conv2d.dsp_tiling import BandTiling, tilings, too_tall
from microfold.kernels.depthwise_conv2d.portable import (
    channel_multiplier,
    depthwise_types,
    unsupported_integer_depthwise,
)
from microfold.kernels.fields import declare, describe
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.requantize.scaled_accumulator import PlaneRequantization
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D

# Adjacent outputs of a block, and maximum number of blocks in an iteration of a loop.
BLOCK = 4
MAX_UNROLL = 6
# Largest offset of a load or a store, in bytes.
REACH = 4095
# Number of FPU registers for the header of a record and for weights.
MAX_HELD = 24
# Number of instructions whose text fits a C99 string.
MAX_LINES = 150


class ColumnsPart(Struct, frozen=True):
    """Adjacent columns of outputs, which one function computes in all rows of some channels.

    Attributes:
        first: first column.
        iterations, unroll: iterations of the loop, and blocks per iteration.
        block: schedule of a block of the loop.
        rest: schedule of the outputs after the loop; None if the loop computes all.
    """

    first: int
    iterations: int
    unroll: int
    block: RowSchedule
    rest: RowSchedule | None


class RowPlan(Struct, frozen=True, dict=True):
    """Tiling of a layer, and the plan of its code.

    Attributes:
        clamps: number of output limits that are narrower than the type's.
        most: maximum number of blocks per iteration of a loop.
        late_loads: whether other instructions should separate a load from the use of its value.
        table: whether outputs are looked up in a table.
    """

    tiling: BandTiling
    requantization: PlaneRequantization
    clamps: int
    most: int
    late_loads: bool
    table: bool

    @property
    def corrected(self) -> bool:
        """Whether negative sums need a correction of their rounding."""
        return self.requantization.form == "short"

    @property
    def header(self) -> int:
        """Number of words of a record before the weights.

        The words are bias, multiplier, addend, and a correction or a shift. Without biases, they are
        multiplier and addend.
        """
        if self.requantization.biasless:
            return 2
        return 3 + (not self.requantization.shift or self.corrected)

    @cached_property
    def taps(self) -> Taps:
        inner = self.tiling.inner
        return Taps(self.tiling.outer.taps, inner.taps, inner.stride, inner.dilation)

    @cached_property
    def parts(self) -> tuple[ColumnsPart, ...]:
        outputs = self.tiling.band_outputs[1]
        count = min(BLOCK, outputs)
        blocks, rest = divmod(outputs, count)
        block = self._schedule(count)
        within = REACH // (count * self.tiling.steps(self.tiling.out)[1])
        unroll = max((u for u in range(1, min(self.most, within) + 1) if blocks % u == 0), default=1)
        behind = self._ordered(rest_schedule(self.taps, rest, block, self.overlapped)) if rest else None
        block = self._ordered(block)
        main = ColumnsPart(0, blocks // unroll, unroll, block, behind)
        if behind is None or self._lines(block) + self._lines(behind) <= MAX_LINES:
            return (main,)
        own = ColumnsPart(blocks * count, 1, 1, self._ordered(self._schedule(rest)), None)
        return (ColumnsPart(0, blocks // unroll, unroll, block, None), own)

    @property
    def unrolled(self) -> bool:
        """Whether an iteration of some loop has several blocks."""
        return any(part.unroll > 1 for part in self.parts)

    def _schedule(self, outputs: int) -> RowSchedule:
        return best_schedule(self.taps, outputs, 4 if self.corrected else 2, self.overlapped)

    def _ordered(self, schedule: RowSchedule) -> RowSchedule:
        """Return the schedule in the order for the core."""
        return overlapped(schedule) if self.overlapped else schedule

    @property
    def overlapped(self) -> bool:
        """Whether other instructions separate loads from uses. Only some forms have registers for it."""
        return self.late_loads and self.requantization.shift > 0 and not self.clamps

    def _lines(self, block: RowSchedule) -> int:
        return block.instructions + self._finish(block.outputs)

    def _finish(self, outputs: int) -> int:
        """Return the instructions, and equally cycles, for a block's bias and its requantisation."""
        each = 3 + 2 * self.corrected + (not self.requantization.shift) + 3 * self.clamps + self.table
        own = self.corrected + (not self.requantization.shift) + self.clamps + self.table
        return outputs * each + 2 + (not self.requantization.biasless) + own

    def refusal(self) -> str | None:
        """Return the reason why the code cannot be generated, or None."""
        tiling, taps = self.tiling, self.taps
        if self.header + taps.words > MAX_HELD:
            return f"a channel must have at most {MAX_HELD - self.header} weight words; it has {taps.words}"
        ahead = max(p.unroll * p.block.outputs for p in self.parts)
        words = (taps.rows - 1) * tiling.outer.dilation * tiling.pitch + tiling.inner.reads(ahead)
        step = tiling.steps(tiling.out)[1]
        if (
            4 * words > REACH
            or ahead * step > REACH
            or any(self._lines(p.block) > MAX_LINES for p in self.parts)
        ):
            return "rows, pixels or windows are too large for the offsets or the length of the assembly code"
        return None

    def cost(self, *, cycles: bool) -> float:
        """Estimate the instructions, or the cycles, of a layer."""
        tiling = self.tiling
        full, rest = divmod(tiling.rows.outputs, tiling.band)
        total = full * self._band(tiling.band, cycles) + (self._band(rest, cycles) if rest else 0.0)
        return total * tiling.x.shape[0]

    def _band(self, band: int, cycles: bool) -> float:
        tiling = self.tiling
        rows = tiling.columns.outputs if tiling.vertical else band
        groups = -(-tiling.x.shape[3] // tiling.lanes)
        inputs = tiling.outer.reads(rows)
        pairs = tiling.inner.inputs / 2
        row, pair = (40, 16) if cycles else (32, 14)
        row += pairs * (pair if tiling.lanes == 4 else 8 * tiling.lanes + 8)
        channels = sum(self._channel(part, rows, cycles) for part in self.parts)
        return groups * (inputs * row + 90) + tiling.out.shape[3] * channels + 2 * tiling.plane

    def _channel(self, part: ColumnsPart, rows: int, cycles: bool) -> float:
        def spent(block: RowSchedule) -> int:
            return (block.cycles if cycles else block.instructions) + self._finish(block.outputs)

        loop = part.iterations * (2 + (5 if cycles else 3)) + 2 if part.iterations > 1 else 2
        row = part.iterations * part.unroll * spent(part.block) + loop + (8 if cycles else 6)
        row += spent(part.rest) if part.rest is not None else 0
        load = self.header + self.taps.words if cycles else 0
        return rows * row + 24 + load


def row_plans(layer: LayerContext) -> list[RowPlan] | str:
    """Return all plans whose code can be generated, or the reason why none can."""
    reason = too_tall(layer)
    if reason is not None:
        return reason
    requantization = plane_requantization(layer)
    if requantization is None or requantization.general:
        return "multipliers or accumulators are too large"
    low, high = output_range.output_limits(layer)
    limits = depthwise_types(layer)[2].dtype.range
    clamps = (low != limits[0]) + (high != limits[1])
    cuts = [t for t in tilings(layer) if not t.vertical or t.band == t.rows.outputs]
    late = layer.target.has("late_loads")
    table = output_table.is_table(layer.node)
    plans = [RowPlan(t, requantization, clamps, most, late, table) for most in (1, MAX_UNROLL) for t in cuts]
    refusals = [plan.refusal() for plan in plans]
    fitting = [plan for plan, refusal in zip(plans, refusals, strict=True) if refusal is None]
    fitting = [plan for plan in fitting if plan.most == 1 or plan.unrolled]
    return fitting or next(refusal for refusal in refusals if refusal is not None)


@register
class DepthwiseConv2DRowDsp(Kernel, Struct, frozen=True, eq=False):
    """Depthwise convolution that expands 4 channels to planes of pairs, then computes all rows of each.

    `records` is [output channels][header and words], see `RowPlan.header`. The words are pairs of int16
    weights in the order of `Taps.pairs`. `plane_requantization` proves the form. `dsp_row_schedule` makes the
    schedules.

    Vertical tilings do not support an indirection buffer, because adjacent pixels along their inner axis are
    in different rows.

    Attributes:
        chosen: plan of a layer's computation; None until it is chosen.
    """

    chosen: RowPlan | None = None
    trades: frozenset[ResourceTradeoff] = frozenset(
        {ResourceTradeoff.IMAGE_CODE, ResourceTradeoff.WIDE_WEIGHTS}
    )

    name = "s8_depthwise_conv2d__dsp_row"
    op = DepthwiseConv2D
    features = frozenset({"dsp", "fpu"})
    code = 1400
    fields = declare(
        "records",
        output_table.TABLE_FIELD,
    )

    def supports(self, layer: LayerContext) -> str | None:
        # The instruction order for cores with late loads has no slot for a table lookup.
        reason = unsupported_integer_depthwise(layer, tables=not layer.target.has("late_loads"))
        if reason is not None:
            return reason
        plans = row_plans(layer)
        return plans if isinstance(plans, str) else None

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        plans = row_plans(layer)
        assert not isinstance(plans, str)
        unrolled = self.trades | {ResourceTradeoff.LONG_ITERATIONS}
        return [replace(self, chosen=p, trades=unrolled if p.unrolled else self.trades) for p in plans]

    @property
    def _plan(self) -> RowPlan:
        assert self.chosen is not None
        return self.chosen

    def terms(self, layer: LayerContext) -> Terms:
        planned = self._plan.cost(cycles=False)
        return Terms(call=1, planned=planned, stalled=self._plan.cost(cycles=True) - planned)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        tiling = self._plan.tiling
        return None if tiling.in_place else tiling.overlap

    def in_place(self, layer: LayerContext, index: int) -> bool:
        return self._plan.tiling.in_place

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not self._plan.tiling.vertical

    def row_release_granularity(self, layer: LayerContext) -> int:
        return self._plan.tiling.band

    def lower(self, layer: LayerContext) -> KernelCall:
        plan = self._plan
        tiling, requantization = plan.tiling, plan.requantization
        x, out, inner, outer = tiling.x, tiling.out, tiling.inner, tiling.outer
        assert x.quant is not None
        low, high = output_range.output_limits(layer)
        steps_in, steps_out = tiling.steps(x), tiling.steps(out)
        padding = np.frombuffer(np.full(4, x.quant.zero_point, np.int8), np.uint32)[0]
        spec: tuple[tuple[str, SpecValue], ...] = (
            ("requantize", requantization.form),
            ("shift", requantization.shift),
            ("output_range", (low, high)),
            *output_table.table_spec(layer.node),
            ("images", x.shape[0]),
            ("image_sizes", (x.nbytes // x.shape[0], out.nbytes // x.shape[0])),
            ("channels", x.shape[3]),
            ("multiplier", channel_multiplier(layer)),
            ("lanes", tiling.lanes),
            ("zero_point", x.quant.zero_point),
            ("padding", int(padding)),
            ("fill", int((padding & np.uint32(0xFF00FF00)).view(np.int32))),
            ("outer", (outer.inputs, outer.outputs, outer.stride, outer.padding, outer.span)),
            ("band", tiling.band_outputs[0]),
            ("outer_steps", (steps_in[0], steps_out[0])),
            ("inner_steps", (steps_in[1], steps_out[1])),
            ("inner", _inner_edges(tiling)),
            ("pitch", tiling.pitch),
            ("row_step", tiling.pitch * outer.stride),
            ("tap_step", tiling.pitch * outer.dilation),
            ("plane", tiling.plane),
            ("header", plan.header),
            ("words", plan.taps.words),
            ("stride", inner.stride),
            ("overlapped", plan.overlapped),
            ("parts", tuple((p.first, p.iterations, p.unroll, p.block.outputs) for p in plan.parts)),
            ("held", tuple(p.block.held for p in plan.parts)),
            ("inputs", tuple(p.block.inputs for p in plan.parts)),
            ("blocks", tuple(_flat(p.block) for p in plan.parts)),
            ("rests", tuple(_flat(p.rest) if p.rest is not None else () for p in plan.parts)),
        )
        records = np.ascontiguousarray(_records(layer, plan))
        parameters: dict[str, Parameter] = {
            "records": Constant("records", records),
            **output_table.table_parameters(layer.node),
        }
        last = ", correction" if plan.header == 4 else ""
        start = "bias, multiplier, addend" + (last if requantization.shift else ", shift")
        if requantization.biasless:
            start = "multiplier, addend"
        order = f"[output channels][{plan.header + plan.taps.words}]: {start}; pairs of weights"
        return KernelCall(
            CFunction("depthwise_conv2d/dsp_row.c.j2", self.name, spec, describe(self.fields, records=order)),
            parameters,
            tiling.scratch,
        )


def _inner_edges(tiling: BandTiling) -> tuple[int, int]:
    """Return the inputs of padding at the start of a plane's row, and the inputs of the image after them."""
    inner = tiling.inner
    reads = inner.reads(tiling.band_outputs[1])
    before = min(inner.padding, reads)
    return before, min(inner.inputs, reads - before)


def _flat(schedule: RowSchedule) -> tuple[int, ...]:
    """Return the outputs, the registers of multiplier and addend, and all steps, as one tuple of integers."""
    records = [step[1] for step in sorted(schedule.steps, key=lambda s: s[2]) if step[0] == RECORD]
    return (schedule.outputs, *(records or (0, 1)), *(value for step in _padded(schedule) for value in step))


def _padded(schedule: RowSchedule) -> Iterator[tuple[int, ...]]:
    for step in schedule.steps:
        yield (*step, *(0,) * (7 - len(step)))


def _records(layer: LayerContext, plan: RowPlan) -> Array:
    """Return the words of `RowPlan.header` and the pairs of weights, for each output channel."""
    filters = layer.array(1)
    assert filters is not None
    order = (2, 1, 0) if plan.tiling.vertical else (2, 0, 1)
    table = plan.requantization.records.astype(np.int64)
    weights = filters[0].transpose(order).astype(np.int64)
    if plan.requantization.shift:
        left = plan.requantization.left
        weights = weights << left[:, None, None]
        table = np.concatenate([table[:, :3], np.int64(1 << 7) << left[:, None]], axis=1)
    none = np.zeros_like(weights[:, :, 0])
    pairs = [
        (weights[:, :, low] & 0xFFFF) | ((weights[:, :, high] if high is not None else none) & 0xFFFF) << 16
        for low, high in plan.taps.pairs()
    ]
    words = np.stack(pairs, axis=2).reshape(len(table), -1)
    return np.concatenate([table[:, : plan.header], words], axis=1).astype(np.uint32).view(np.int32)
