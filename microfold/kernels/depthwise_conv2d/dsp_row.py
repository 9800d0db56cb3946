"""Depthwise convolution for cores with DSP instructions and a floating-point unit: code for one shape.

Channels are expanded to planes as in `depthwise_conv2d.dsp`. Offsets are constants of the code, which saves
registers, and those of the floating-point unit hold what is needed now and then: so weights stay in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.dsp import plane_requantization
from microfold.kernels.depthwise_conv2d.dsp_row_schedule import (
    RECORD,
    Schedule,
    Taps,
    best_schedule,
    overlapped,
    rest_schedule,
)
from microfold.kernels.depthwise_conv2d.dsp_tiling import Tiling, tilings, too_tall
from microfold.kernels.depthwise_conv2d.portable import (
    channel_multiplier,
    depthwise_types,
    unsupported_integer_depthwise,
)
from microfold.kernels.fields import declare, describe
from microfold.kernels.kernel import Kernel, Trade, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.requantize.scaled_sum import PlaneRequantization
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.support.frozen import frozen

# Neighbouring outputs computed together, and how many such blocks an iteration of a loop has at most.
BLOCK = 4
MAX_UNROLL = 6
# Largest offset of a load or a store.
REACH = 4095
# Registers of the floating-point unit for the start of a record and for weights.
MAX_HELD = 24
# Instructions whose text fits a C99 string.
MAX_LINES = 150


@frozen
class Part:
    """Neighbouring columns of outputs, computed by one function in all rows of some channels.

    Attributes:
        first: its first column.
        iterations, unroll: of a loop, and blocks in each iteration.
        block: the schedule of a block of a loop.
        rest: of the outputs behind the loop; None if there are none.
    """

    first: int
    iterations: int
    unroll: int
    block: Schedule
    rest: Schedule | None


@frozen
class RowPlan:
    """A layer's cut and its code.

    Attributes:
        clamps: bounds of outputs within their type's.
        most: blocks that an iteration of a loop may have.
        late_loads: other instructions should stand between a load and what it is for.
        table: outputs are looked up.
    """

    tiling: Tiling
    requantization: PlaneRequantization
    clamps: int
    most: int
    late_loads: bool
    table: bool

    @property
    def corrected(self) -> bool:
        """Negative sums round otherwise."""
        return self.requantization.form == "short"

    @property
    def header(self) -> int:
        """Words of a record before the weights: bias, multiplier, addend, and a correction or a shift.

        Biasless ones: multiplier, addend.
        """
        if self.requantization.biasless:
            return 2
        return 3 + (not self.requantization.shift or self.corrected)

    @cached_property
    def taps(self) -> Taps:
        inner = self.tiling.inner
        return Taps(self.tiling.outer.taps, inner.taps, inner.stride, inner.dilation)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        outputs = self.tiling.band_outputs[1]
        count = min(BLOCK, outputs)
        blocks, rest = divmod(outputs, count)
        block = self._schedule(count)
        within = REACH // (count * self.tiling.steps(self.tiling.out)[1])
        unroll = max((u for u in range(1, min(self.most, within) + 1) if blocks % u == 0), default=1)
        behind = self._ordered(rest_schedule(self.taps, rest, block, self.overlapped)) if rest else None
        block = self._ordered(block)
        main = Part(0, blocks // unroll, unroll, block, behind)
        if behind is None or self._lines(block) + self._lines(behind) <= MAX_LINES:
            return (main,)
        own = Part(blocks * count, 1, 1, self._ordered(self._schedule(rest)), None)
        return (Part(0, blocks // unroll, unroll, block, None), own)

    @property
    def unrolled(self) -> bool:
        """An iteration of some loop has several blocks."""
        return any(part.unroll > 1 for part in self.parts)

    def _schedule(self, outputs: int) -> Schedule:
        return best_schedule(self.taps, outputs, 4 if self.corrected else 2, self.overlapped)

    def _ordered(self, schedule: Schedule) -> Schedule:
        """As the core runs it."""
        return overlapped(schedule) if self.overlapped else schedule

    @property
    def overlapped(self) -> bool:
        """Loads stand apart from what they are for; other forms have no registers for that."""
        return self.late_loads and self.requantization.shift > 0 and not self.clamps

    def _lines(self, block: Schedule) -> int:
        return block.instructions + self._finish(block.outputs)

    def _finish(self, outputs: int) -> int:
        """Instructions and cycles from the sums of a block to its outputs, and for the bias."""
        each = 3 + 2 * self.corrected + (not self.requantization.shift) + 3 * self.clamps + self.table
        own = self.corrected + (not self.requantization.shift) + self.clamps + self.table
        return outputs * each + 2 + (not self.requantization.biasless) + own

    def refusal(self) -> str | None:
        """Why the code cannot be written, if so."""
        tiling, taps = self.tiling, self.taps
        if self.header + taps.words > MAX_HELD:
            return f"the weights of a channel may have {MAX_HELD - self.header} words; they have {taps.words}"
        ahead = max(p.unroll * p.block.outputs for p in self.parts)
        words = (taps.rows - 1) * tiling.outer.dilation * tiling.pitch + tiling.inner.reads(ahead)
        step = tiling.steps(tiling.out)[1]
        if (
            4 * words > REACH
            or ahead * step > REACH
            or any(self._lines(p.block) > MAX_LINES for p in self.parts)
        ):
            return "rows, pixels or windows are too large for the offsets and the lines of the assembly"
        return None

    def cost(self, *, cycles: bool) -> float:
        """Estimated instructions, or cycles, of a layer."""
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

    def _channel(self, part: Part, rows: int, cycles: bool) -> float:
        def spent(block: Schedule) -> int:
            return (block.cycles if cycles else block.instructions) + self._finish(block.outputs)

        loop = part.iterations * (2 + (5 if cycles else 3)) + 2 if part.iterations > 1 else 2
        row = part.iterations * part.unroll * spent(part.block) + loop + (8 if cycles else 6)
        row += spent(part.rest) if part.rest is not None else 0
        load = self.header + self.taps.words if cycles else 0
        return rows * row + 24 + load


def row_plans(layer: LayerContext) -> list[RowPlan] | str:
    """Return all plans whose code can be written, or why there is none."""
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
@frozen(eq=False)
class DepthwiseConv2DRowDsp(Kernel):
    """Expands four channels at a time to planes of 16-bit pairs; then all rows of outputs of a channel.

    `records` are [output channels][header and words], see `RowPlan.header`; the words are pairs of int16
    weights in the order of `Taps.pairs`. `plane_requantization` proves the form; the schedules come from
    `dsp_row_schedule`.

    Vertical tilings do not read rows by address: along their inner axis, each pixel lies in another row.

    Attributes:
        chosen: how a layer is cut and computed; None before that is chosen.
    """

    chosen: RowPlan | None = None
    trades: frozenset[Trade] = frozenset({Trade.IMAGE_CODE, Trade.WIDE_WEIGHTS})

    name = "s8_depthwise_conv2d__dsp_row"
    op = DepthwiseConv2D
    features = frozenset({"dsp", "fpu"})
    code = 1400
    fields = declare(
        "records",
        output_table.TABLE_FIELD,
    )

    def supports(self, layer: LayerContext) -> str | None:
        # Where two instructions are issued together, their order has no place for a table.
        reason = unsupported_integer_depthwise(layer, tables=not layer.target.has("late_loads"))
        if reason is not None:
            return reason
        plans = row_plans(layer)
        return plans if isinstance(plans, str) else None

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        plans = row_plans(layer)
        assert not isinstance(plans, str)
        unrolled = self.trades | {Trade.LONG_ITERATIONS}
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

    def reads_rows(self, layer: LayerContext) -> bool:
        return not self._plan.tiling.vertical

    def rows_held(self, layer: LayerContext) -> int:
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


def _inner_edges(tiling: Tiling) -> tuple[int, int]:
    """Of a row of a plane: inputs of padding at its start, and inputs of the image behind them."""
    inner = tiling.inner
    reads = inner.reads(tiling.band_outputs[1])
    before = min(inner.padding, reads)
    return before, min(inner.inputs, reads - before)


def _flat(schedule: Schedule) -> tuple[int, ...]:
    """The steps one behind the other; before them outputs, and registers of multiplier and addend."""
    records = [step[1] for step in sorted(schedule.steps, key=lambda s: s[2]) if step[0] == RECORD]
    return (schedule.outputs, *(records or (0, 1)), *(value for step in _padded(schedule) for value in step))


def _padded(schedule: Schedule) -> Iterator[tuple[int, ...]]:
    for step in schedule.steps:
        yield (*step, *(0,) * (7 - len(step)))


def _records(layer: LayerContext, plan: RowPlan) -> Array:
    """For each output channel: the words of `RowPlan.header`, and pairs of weights."""
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
