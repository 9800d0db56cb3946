"""int8 convolution for cores with the DSP extension and an FPU, whose registers hold weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from microfold.kernels.call import CFunction, KernelCall, Parameter, SpecValue
from microfold.kernels.conv2d.dsp import PIXELS, ChannelPlan, channel_plans, plan_channels
from microfold.kernels.conv2d.dsp_fpu_registers import Placement, place_weights
from microfold.kernels.conv2d.patch import WRITTEN_SEGMENT, count_pairs, count_segments
from microfold.kernels.conv2d.portable import (
    conv_types,
    is_pointwise,
    shape_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import band_overlap, window_overlap
from microfold.kernels.packing import smlad
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.kernels.shapes import IMAGE_FIELDS, WINDOW_FIELDS
from microfold.ops.convolution.conv2d import Conv2D

# Limits of the scratch for widened inputs, in bytes: default; alternatives for a smaller arena; for speed.
# Two groups of 4 pixels always fit, even if they need more.
USUAL_SCRATCH, LESS_SCRATCH, MOST_SCRATCH = 2048, (1536, 1024), 4096
# Smallest number of groups with less scratch. With fewer, registers would be loaded with weights too often.
FEWEST_GROUPS = 3
# Size of the C struct in front of the panels, mf_pixel_groups or mf_spaced_pixel_groups, which templates
# check, and of the word after the panels.
GROUPS_BYTES, SPACED_GROUPS_BYTES = 28, 36
END_BYTES = 4
# Rows are copied with their padding if more than this fraction of the windows crosses an edge of the image,
# and all rows that are needed together have no more than this many bytes.
CROSSING, PADDED_LIMIT = 0.25, 1024
# Largest part of a panel, in bytes, that a group may share with the next one: the range of an LDR's offset.
REACH = 4095
# Smallest number of pairs for which words of two channels save more register space than unpacking costs.
FEWEST_PAIRED = 20


class FpuConvolution(Struct, frozen=True, dict=True):
    """Plan of one layer's computation.

    Attributes:
        layer: layer that is computed.
        channels: plan of its output channels.
        limit: limit of the scratch for widened inputs, in bytes.
    """

    layer: LayerContext
    channels: ChannelPlan
    limit: int

    @property
    def pairs(self) -> int:
        return count_pairs(self.layer)

    @property
    def packing(self) -> str:
        return self.channels.packing

    @cached_property
    def placement(self) -> Placement:
        paired, biasless = self.packing == "paired", self.channels.biasless is not None
        record = 2 if biasless else 2 + paired + (self.channels.form == RequantizeForm.SHORT.value)
        spaced = not is_pointwise(conv_types(self.layer)[3])
        return place_weights(self.pairs, 1 if paired else 2, 2 * record, spaced=spaced, biased=not biasless)

    @property
    def shared(self) -> int:
        """Number of pairs at the end of a group with which the next group, below it, begins."""
        window = conv_types(self.layer)[3]
        rows = window.size[0] - window.strides[0] if window.dilations[0] == 1 else 0
        return max(rows, 0) * self.pairs // window.size[0]

    @cached_property
    def groups(self) -> int:
        """Number of groups of 4 pixels that are computed in turn for the same two channels."""
        _, _, out, window = conv_types(self.layer)
        step = 4 * PIXELS
        most = max((self.limit // step - self.shared) // (self.pairs - self.shared), 2)
        if not is_pointwise(window):
            # Bands have about the same height. A remaining column is split into four parts, and a group has
            # one pixel of each part.
            bands = -(-out.shape[1] // most)
            rows = -(-out.shape[1] // bands)
            return rows + -rows % PIXELS if out.shape[2] % PIXELS and rows + -rows % PIXELS <= most else rows
        pixels = out.size // out.shape[3]
        whole, rest = divmod(pixels, PIXELS)
        if whole + (rest > 0) <= most:
            return whole + (rest > 0)
        # The last groups must not consist of 2 or 3 pixels alone.
        numbers = (*range(most, 1, -1), *range(most + 1, whole + 2))
        return next(g for g in numbers if whole % g or rest < 2)

    @property
    def loops(self) -> bool:
        """Whether a loop loads weights."""
        return self.placement.iterations > 0 or self.placement.batches > 0

    @property
    def state_bytes(self) -> int:
        """Size of the C struct in front of the panels, in bytes."""
        neighbours = is_pointwise(conv_types(self.layer)[3])
        return GROUPS_BYTES if neighbours and not self.loops else SPACED_GROUPS_BYTES

    @property
    def scratch(self) -> int:
        """Size of the panels with the struct in front of them and the word after them, in bytes."""
        own = self.pairs - self.shared
        return self.state_bytes + 4 * PIXELS * (own * self.groups + self.shared) + END_BYTES

    @property
    def rest(self) -> int:
        """Number of pixels after complete groups. Without a pointwise window, 1 if columns remain, else 0."""
        _, _, out, window = conv_types(self.layer)
        pointwise = is_pointwise(window)
        return out.size // out.shape[3] % PIXELS if pointwise else int(out.shape[2] % PIXELS > 0)

    @property
    def padded_row(self) -> int:
        """Size of a padded row of inputs, which contains all windows of a row of outputs, in bytes."""
        x, _, out, window = conv_types(self.layer)
        row = ((out.shape[2] - 1) * window.strides[1] + window.size[1]) * x.shape[3]
        return row + -row % 4

    @property
    def padded_bytes(self) -> int:
        """Size of the padded rows of all groups, in bytes; 0 if rows are not copied."""
        x, _, out, window = conv_types(self.layer)
        crossing = 1 - window.positions_inside(*x.shape[1:3]) / (out.shape[1] * out.shape[2])
        height = (self.groups - 1) * window.strides[0] + (window.size[0] - 1) * window.dilations[0] + 1
        size = height * self.padded_row
        run = window.dilations[1] == 1 and count_segments(self.layer)[1] <= WRITTEN_SEGMENT
        return size if run and crossing > CROSSING and size <= PADDED_LIMIT else 0

    @property
    def terms(self) -> Terms:
        """Counts of the code parts that run for 4 pixels in all channels."""
        short = self.channels.form == RequantizeForm.SHORT.value
        each = Terms(block=1, paired=self.packing == "paired", signed=short)
        placement = self.placement
        kind = "batched" if placement.batches else "held" if placement.stream < placement.held else "streamed"
        return self.channels.blocks * (each + Terms({kind: placement.instructions}))


@register
class Conv2DFpuDsp(Kernel, Struct, frozen=True, eq=False):
    """SMLAD convolution that widens the patches of several groups of 4 pixels, then computes 2 channels.

    The patches of a group are interleaved: 4 words with a pair of inputs of each pixel, then the next 4. A
    group is below the previous one in the image, so that it begins with the last rows of the previous one.

    The weights of the two channels stay in FPU registers, as many as `place_weights` can place. The others
    are streamed from memory. The constants are the stream of `SmladConvolution`; `supports` requires a form
    with a common shift.

    Attributes:
        chosen: plan of a layer's computation; None until it is chosen.
    """

    chosen: FpuConvolution | None = None
    trades: frozenset[ResourceTradeoff] = frozenset(
        {ResourceTradeoff.LONG_CODE, ResourceTradeoff.WINDOW_CODE, ResourceTradeoff.INPUT_SCRATCH}
    )

    name = "s8_conv2d__dsp_fpu"
    op = Conv2D
    features = frozenset({"dsp", "fpu"})
    code = 1400
    superseded_by = frozenset({"late_loads"})
    fields = declare(
        Field("weights", "a stream of biases, pairs of weights and requantisation, two channels at a time"),
        Field("words", "words of that stream"),
        Field("whole_words", "words without an odd last channel"),
        Field("pairs", "pairs of inputs of a patch"),
        Field("streamed", "bytes of weights of two channels that are not in registers"),
        Field("groups", "groups of 4 pixels that are computed in turn for the same two channels"),
        Field("segment", "contiguous bytes that are widened together"),
        "output_channels",
        "pixels",
        *IMAGE_FIELDS,
        *WINDOW_FIELDS,
        "input_zero_point",
        Field("border", "offset of four spare segments in the scratch"),
        Field("padded_row", "bytes of a row of input with padding"),
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_conv(layer, tables=True)
        if reason is not None:
            return reason
        out = conv_types(layer)[2]
        if out.shape[3] == 1 or out.size // out.shape[3] < PIXELS:
            return f"it requires at least 2 output channels and {PIXELS} pixels"
        plan = FpuConvolution(layer, plan_channels(layer), USUAL_SCRATCH)
        if not any(channels.shift for channels, _ in channel_plans(layer)):
            return "all channels must have the same shift"
        if 16 * plan.shared > REACH:
            return f"windows below each other may share at most {REACH // 16} pairs of inputs in each column"
        return None

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        ways = [way for way in channel_plans(layer) if way[0].shift]
        if len(ways) > 1 and count_pairs(layer) >= FEWEST_PAIRED:
            ways = ways[:1]
        found: list[Kernel] = []
        for channels, trades in ways:
            plans = [FpuConvolution(layer, channels, USUAL_SCRATCH)]
            for limit in LESS_SCRATCH:
                plan = FpuConvolution(layer, channels, limit)
                if FEWEST_GROUPS <= plan.groups < plans[-1].groups:
                    plans.append(plan)
            found += [replace(self, chosen=plan, trades=self.trades | trades) for plan in plans]
            most = FpuConvolution(layer, channels, MOST_SCRATCH)
            if most.groups > plans[0].groups:
                found.append(
                    replace(self, chosen=most, trades=self.trades | trades | {ResourceTradeoff.SCRATCH})
                )
        return found

    @property
    def _plan(self) -> FpuConvolution:
        assert self.chosen is not None
        return self.chosen

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out, window = conv_types(layer)
        plan = self._plan
        channels, groups = plan.channels, plan.groups
        segments, segment = count_segments(layer)
        single = channels.single_terms(plan.pairs)
        start = Terms(start=1, start_block=channels.blocks)
        clamps = Terms(clamped=out.size * channels.clamp) + output_table.table_terms(layer)
        written = "written" if segment <= WRITTEN_SEGMENT else "looped"
        if is_pointwise(window):
            widen = Terms({"widened": segment, f"pixels_{written}": 1})
            whole, rest = divmod(out.size // out.shape[3], PIXELS)
            calls = -(-whole // groups) + (rest > 1)
            whole += rest > 1
            last = (rest == 1) * (single + widen * 0.5)
            return clamps + Terms(call=1) + whole * (plan.terms + widen) + calls * start + last
        rows, columns = out.shape[1:3]
        edges = 1 - window.positions_inside(*x.shape[1:3]) / (rows * columns)
        row = Terms({"row": 1, f"row_{written}": segment, "edge": edges * PIXELS})
        strips, left = divmod(columns, PIXELS)
        total = Terms()
        for begin in range(0, rows, groups):
            height = min(groups, rows - begin)
            own, all_rows = plan.pairs - plan.shared, height * (plan.pairs - plan.shared) + plan.shared
            assert own
            widened = all_rows * segments / plan.pairs * row
            total += strips * (height * plan.terms + widened + start)
            parts, singles = divmod(height, PIXELS)
            if parts:
                all_rows = parts * own + plan.shared
                total += left * (parts * plan.terms + all_rows * segments / plan.pairs * row + start)
            total += left * singles * (single + segments * row)
        return clamps + Terms(call=1) + out.shape[0] * total

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        groups = self._plan.groups
        if is_pointwise(window):
            return window_overlap(x, out, window, PIXELS * groups, across_rows=True)
        return band_overlap(x, out, window, PIXELS, groups)

    def row_granularity(self, layer: LayerContext) -> int:
        _, _, out, window = conv_types(layer)
        # In pointwise layers, groups continue in the next row.
        return 1 if is_pointwise(window) else min(self._plan.groups, out.shape[1])

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def row_release_granularity(self, layer: LayerContext) -> int:
        return self.row_granularity(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = conv_types(layer)
        assert x.quant is not None
        plan = self._plan
        channels, placement = plan.channels, plan.placement
        _, segment = count_segments(layer)
        pointwise = is_pointwise(window)
        spec: tuple[tuple[str, SpecValue], ...] = (
            *channels.requantization,
            ("packing", plan.packing),
            ("pointwise", pointwise),
            ("segment", segment if segment <= WRITTEN_SEGMENT else 0),
            ("held", placement.held),
            ("streamed", placement.streamed),
            ("loop", placement.iterations > 0),
            ("records", placement.records),
            ("batches", placement.batches),
            ("shared", plan.shared),
            ("padded", plan.padded_bytes > 0),
            ("rest", plan.rest),
            ("clamp_behind", channels.clamp),
            *output_table.table_spec(layer.node),
            ("groups_bytes", plan.state_bytes),
        )
        parameters: dict[str, Parameter] = channels.stream(smlad.pair_lanes(channels.plan.matrix, segment))
        parameters |= {
            "pairs": plan.pairs,
            "groups": plan.groups,
            "segment": segment,
            **output_table.table_parameters(layer.node),
        }
        if plan.loops:
            parameters |= {"streamed": placement.stream * (4 if plan.packing == "paired" else 8)}
        if channels.clamp:
            parameters |= channels.bounds
        scratch = plan.scratch
        if pointwise:
            parameters |= {"pixels": out.size // out.shape[3]}
        else:
            parameters |= shape_parameters(layer) | {
                "input_zero_point": x.quant.zero_point,
                "border": scratch,
            }
            scratch += plan.padded_bytes or PIXELS * (segment + -segment % 4)
        fields = self.fields
        if plan.padded_bytes:
            parameters |= {"padded_row": plan.padded_row}
            # All windows are inside padded rows, and the code that widens their segments is unrolled.
            del parameters["segment"], parameters["kernel_width"], parameters["dilation_width"]
            fields = describe(fields, border="offset of rows of input with padding in the scratch")
        return KernelCall(CFunction("conv2d/dsp_fpu.c.j2", self.name, spec, fields), parameters, scratch)
