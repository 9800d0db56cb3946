"""Depthwise convolution for cores with DSP instructions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from microfold.ir.types import Array, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.depthwise_conv2d.portable import (
    channel_multiplier,
    channel_records,
    depthwise_matrix,
    depthwise_types,
    plane_in_place,
    unsupported_integer_depthwise,
)
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.scaled_sum import (
    PLANE_LIMIT,
    PlaneRequantization,
    plan_plane_requantization,
)
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D

# Taps along the unrolled axis, and weight words on the stack.
MAX_TAPS = 16
MAX_WORDS = 128


@dataclass(frozen=True)
class WindowAxis:
    """Geometry along one axis: of the image, the outputs and the window."""

    inputs: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    padding: int

    @property
    def span(self) -> int:
        return (self.taps - 1) * self.dilation + 1

    def reads(self, outputs: int) -> int:
        """Inputs under the windows of neighbouring outputs."""
        return (outputs - 1) * self.stride + self.span


@dataclass(frozen=True)
class Tiling:
    """How a layer is cut.

    Attributes:
        vertical: the rows are along the inner axis, else the columns.
        band: how many output rows of the image are computed at a time.
        corrected: some outputs of negative sums round otherwise.
    """

    x: TensorType
    out: TensorType
    rows: WindowAxis
    columns: WindowAxis
    vertical: bool
    band: int
    corrected: bool

    @property
    def inner(self) -> WindowAxis:
        return self.rows if self.vertical else self.columns

    @property
    def outer(self) -> WindowAxis:
        return self.columns if self.vertical else self.rows

    @property
    def lanes(self) -> int:
        """Channels expanded together."""
        return min(self.x.shape[3], 4)

    @property
    def band_outputs(self) -> tuple[int, int]:
        """Outputs of a full band along the outer and the inner axis."""
        return (self.columns.outputs, self.band) if self.vertical else (self.band, self.columns.outputs)

    def steps(self, image: TensorType) -> tuple[int, int]:
        """Bytes from a pixel of an input or output to the next one along the outer and the inner axis."""
        _, _, width, channels = image.shape
        return (channels, width * channels) if self.vertical else (width * channels, channels)

    @property
    def pitch(self) -> int:
        """Words of one row of a plane."""
        return -(-self.inner.reads(self.band_outputs[1]) // 2)

    @property
    def plane(self) -> int:
        """Words of one channel's plane."""
        return self.pitch * self.outer.reads(self.band_outputs[0])

    @property
    def scratch(self) -> int:
        return 4 * self.plane * self.lanes

    @property
    def row_words(self) -> int:
        """Weight words of one row of taps; see the template."""
        taps = self.inner.taps
        odd = (taps - 1) // 2 if self.inner.dilation == 1 and self.inner.stride % 2 else 0
        return taps // 2 + odd + (taps % 2 if not odd else 0)

    @property
    def in_place(self) -> bool:
        """One band is the whole image, so that channels are finished one after the other."""
        return self.band == self.rows.outputs and plane_in_place(self.x, self.out)

    @cached_property
    def overlap(self) -> int:
        """Smallest input address less output address; bytes.

        A band reads its input rows again for every four channels, and writes in between. When the band is the
        whole image, each channel is copied before it is written.
        """
        batch, height, _, _ = self.x.shape
        row_in = self.x.nbytes // (batch * height)
        row_out = self.out.nbytes // (batch * self.rows.outputs)
        if self.in_place:
            return 0
        begins = np.arange(0, self.rows.outputs, self.band)
        ends = np.minimum(begins + self.band, self.rows.outputs)
        first = np.clip(begins * self.rows.stride - self.rows.padding, 0, height)
        image = np.arange(batch)[:, None]
        behind = (image * self.rows.outputs + ends) * row_out
        lowest = (image * height + first) * row_in
        return int((behind - lowest).max())

    @property
    def extra_memory(self) -> int:
        """Bytes of scratch, and by how far the output may not lie over the input."""
        return min(max(self.overlap, 0), self.x.nbytes) + self.scratch

    @cached_property
    def instructions(self) -> float:
        """Estimate for the whole layer."""
        full, rest = divmod(self.rows.outputs, self.band)
        total = full * self._band_instructions(self.band) + (self._band_instructions(rest) if rest else 0.0)
        return total * self.x.shape[0]

    def _band_instructions(self, band: int) -> float:
        outers, inners = (self.columns.outputs, band) if self.vertical else (band, self.columns.outputs)
        blocks = -(-self.x.shape[3] // self.lanes)
        pairs = self.inner.reads(inners) / 2
        expand = self.outer.reads(outers) * (28 + pairs * (4 + 2.5 * self.lanes)) + 60
        columns = inners // 4 * self._block(4)
        columns += (self._block(2) if inners & 2 else 0) + (self._block(1) if inners & 1 else 0)
        filters = 55 + self.outer.taps * (4 + 3 * self.inner.taps) + outers * (9 + columns)
        if inners >= 4 and self._in_assembly:
            filters += 35 + 12 * outers
        return blocks * expand + self.out.shape[3] * filters

    @property
    def _in_assembly(self) -> bool:
        """Four outputs are computed by the assembly of dsp_block.j2, if their requantisation is short."""
        axis = self.inner
        return self.outer.taps <= 3 and axis.taps == 3 and axis.stride <= 2 and axis.dilation == 1

    def _block(self, count: int) -> float:
        """Instructions for neighbouring outputs of one row."""
        axis = self.inner
        if count == 4 and self._in_assembly:
            return self.outer.taps * (12 if axis.stride == 1 else 14) + 19 + 8 * self.corrected
        loads = ((count - 1) * axis.stride + axis.span) / 2 + 1
        products = count * (axis.taps if axis.dilation > 1 else (axis.taps + 1.5) / 2)
        each = 6 if self.corrected else 4
        return self.outer.taps * (loads + self.row_words * 0.8 + products) + each * count + 5


def axes(layer: LayerContext) -> tuple[WindowAxis, WindowAxis]:
    """Geometry along rows and columns."""
    x, _, out, window = depthwise_types(layer)
    rows, columns = (
        WindowAxis(
            x.shape[1 + i],
            out.shape[1 + i],
            window.size[i],
            window.strides[i],
            window.dilations[i],
            window.padding[i][0],
        )
        for i in range(2)
    )
    return rows, columns


def tilings(layer: LayerContext) -> Iterator[Tiling]:
    """All cuts into bands of about the same height."""
    x, _, out, _ = depthwise_types(layer)
    rows, columns = axes(layer)
    assert out.quant is not None
    corrected = output_range.integer_bounds(layer.node)[0] < out.quant.zero_point
    bands = sorted({-(-rows.outputs // n) for n in range(1, rows.outputs + 1)})
    for vertical in (False, True):
        for band in bands:
            yield Tiling(x, out, rows, columns, vertical, band, corrected)


def _fits(tiling: Tiling) -> bool:
    inner, outer = tiling.inner, tiling.outer
    return inner.taps <= MAX_TAPS and outer.taps * inner.taps <= MAX_WORDS


@register
@dataclass(frozen=True, eq=False)
class DepthwiseConv2DDsp(Kernel):
    """Expands four channels at a time to planes of 16-bit pairs, then multiplies pairs of taps.

    `weights` are int8 [output channels][outer taps][inner taps], `channels` records (bias * 256, multiplier,
    addend, shift): inputs are 256 times as large. `plan_plane_requantization` proves their form.

    Attributes:
        cut: of the layer; None before it is chosen.
    """

    cut: Tiling | None = None

    name = "s8_depthwise_conv2d__dsp_plane"
    op = DepthwiseConv2D
    features = frozenset({"dsp"})
    code = 1450
    fields = declare(
        Field("weights", "[output channels][outer taps][inner taps]"),
        "channels",
        "images",
        Field("input_size", "bytes of an image"),
        "output_size",
        "input_channels",
        "channel_multiplier",
        Field("outer_inputs", "pixels along the outer and the inner axis, and bytes from one to the next"),
        "inner_inputs",
        "outer_input_step",
        "inner_input_step",
        "outer_outputs",
        "inner_outputs",
        "outer_output_step",
        "inner_output_step",
        Field("outer_band", "outputs computed at a time"),
        "inner_band",
        "outer_padding",
        "inner_padding",
        "outer_stride",
        Field("outer_span", "inputs under the window along each axis"),
        "inner_span",
        Field("plane", "words of one channel's pixels"),
        Field("pitch", "words from one row of a plane to the next"),
        Field("row_step", "words from one row of outputs, and of taps, to the next"),
        "tap_step",
        Field("padding", "the input's zero point in all four bytes"),
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_depthwise(layer)
        if reason is not None:
            return reason
        if not self.variants(layer):
            return f"the window may have {MAX_TAPS} taps along one axis and {MAX_WORDS} in all"
        _, (low, high) = product_sum.bias_and_bounds(layer, depthwise_matrix(layer))
        largest = max(int(high.max()), -int(low.min()))
        if plane_requantization(layer) is None:
            return f"accumulators must stay below {PLANE_LIMIT}; they reach {largest}"
        return None

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        return [replace(self, cut=tiling) for tiling in tilings(layer) if _fits(tiling)]

    @property
    def _tiling(self) -> Tiling:
        assert self.cut is not None
        return self.cut

    def cost(self, layer: LayerContext) -> float:
        return self._tiling.instructions

    def extra_memory(self, layer: LayerContext) -> int:
        return self._tiling.extra_memory

    def cycles_per_instruction(self, layer: LayerContext) -> float:
        return 1.4

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return None if self._tiling.in_place else self._tiling.overlap

    def in_place(self, layer: LayerContext, index: int) -> bool:
        return self._tiling.in_place

    def reads_rows(self, layer: LayerContext) -> bool:
        return not self._tiling.vertical

    def lower(self, layer: LayerContext) -> KernelCall:
        tiling = self._tiling
        plan = plane_requantization(layer)
        assert plan is not None
        x, out, inner, outer = tiling.x, tiling.out, tiling.inner, tiling.outer
        assert x.quant is not None
        low, high = output_range.output_limits(layer)
        clamp = plan.general or (low, high) != out.dtype.range
        spec: tuple[tuple[str, SpecValue], ...] = (
            ("outer_taps", outer.taps),
            ("taps", inner.taps),
            ("stride", inner.stride),
            ("dilation", inner.dilation),
            ("lanes", tiling.lanes),
            ("requantize", plan.form),
            ("shift", plan.shift),
            ("clamp", clamp),
        )
        steps_in, steps_out = tiling.steps(x), tiling.steps(out)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", _packed(layer, tiling)),
            "channels": Constant("channels", plan.records, record="mf_channel"),
            "images": x.shape[0],
            "input_size": x.nbytes // x.shape[0],
            "output_size": out.nbytes // x.shape[0],
            "input_channels": x.shape[3],
            "channel_multiplier": channel_multiplier(layer),
            "outer_inputs": outer.inputs,
            "inner_inputs": inner.inputs,
            "outer_input_step": steps_in[0],
            "inner_input_step": steps_in[1],
            "outer_outputs": outer.outputs,
            "inner_outputs": inner.outputs,
            "outer_output_step": steps_out[0],
            "inner_output_step": steps_out[1],
            "outer_band": tiling.band_outputs[0],
            "inner_band": tiling.band_outputs[1],
            "outer_padding": outer.padding,
            "inner_padding": inner.padding,
            "outer_stride": outer.stride,
            "outer_span": outer.span,
            "inner_span": inner.span,
            "plane": tiling.plane,
            "pitch": tiling.pitch,
            "row_step": tiling.pitch * outer.stride,
            "tap_step": tiling.pitch * outer.dilation,
            "padding": int(np.frombuffer(np.full(4, x.quant.zero_point, np.int8), np.int32)[0]),
        }
        if outer.taps == 1:
            del parameters["tap_step"]
        if clamp:
            parameters |= {"output_minimum": low, "output_maximum": high}
        return KernelCall(
            CFunction("depthwise_conv2d/dsp.c.j2", self.name, spec, self.fields), parameters, tiling.scratch
        )


def _packed(layer: LayerContext, tiling: Tiling) -> Array:
    """Filters as int8 [output channels, outer taps, inner taps]."""
    filters = layer.array(1)
    assert filters is not None
    order = (2, 1, 0) if tiling.vertical else (2, 0, 1)
    return np.ascontiguousarray(filters[0].transpose(order))


def plane_requantization(layer: LayerContext) -> PlaneRequantization | None:
    out = depthwise_types(layer)[2]
    assert out.quant is not None
    multipliers = product_sum.channel_multipliers(layer)
    bias, bounds = product_sum.bias_and_bounds(layer, depthwise_matrix(layer))
    limits = output_range.integer_bounds(layer.node)
    return plan_plane_requantization(bias, bounds, *multipliers, out.quant.zero_point, limits)


@register
class DepthwiseConv2DTapsDsp(Kernel):
    """Four channels at a time, tap after tap: for windows without padding that give few outputs.

    SXTB16 widens words of four inputs and of four weights, SMLABB and SMLATT multiply one half of each.
    `weights` are [taps][channels]; `channels` are records (bias, multiplier, addend, shift), whose form
    `channel_records` proves.
    """

    name = "s8_depthwise_conv2d__dsp_taps"
    op = DepthwiseConv2D
    features = frozenset({"dsp"})
    code = 350
    fields = declare(
        Field("weights", "[taps][channels]"),
        "channels",
        "batch",
        Field("input_size", "bytes of an image"),
        "channel_count",
        "output_height",
        "output_width",
        Field("output_row_step", "bytes in the input from one output to the next, down and right"),
        "output_column_step",
        "tap_rows",
        "tap_columns",
        Field("tap_row_step", "bytes in the input from one tap to the next, down and right"),
        "tap_column_step",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_depthwise(layer)
        if reason is not None:
            return reason
        x, _, _, window = depthwise_types(layer)
        if window.padding != ((0, 0), (0, 0)):
            return "it does not pad"
        if channel_multiplier(layer) != 1 or x.shape[3] < 4:
            return "it needs one output per input channel, and at least 4 channels"
        return None

    def cost(self, layer: LayerContext) -> float:
        _, _, out, window = depthwise_types(layer)
        pixels = out.size // out.shape[3]
        # Compiled for size, sums do not stay in registers.
        tap, output = (45, 150) if layer.compiled_for_size else (14, 130)
        taps = tap * window.size[0] * window.size[1] + 8 * min(window.size)
        return pixels * (15 + -(-out.shape[3] // 4) * (taps + output))

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = depthwise_types(layer)
        return window_overlap(x, out, window, 1, reads_first=False)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = depthwise_types(layer)
        filters = layer.array(1)
        assert filters is not None
        plan, bounds = channel_records(layer)
        channels = x.shape[3]
        row = x.shape[2] * channels
        steps = (window.dilations[0] * row, window.dilations[1] * channels)
        # A column of taps is as good as a row, and a row is one loop.
        turned = window.size[1] == 1
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", np.ascontiguousarray(filters.reshape(-1, channels))),
            "channels": Constant("channels", plan.records, record="mf_channel"),
            "batch": x.shape[0],
            "input_size": x.nbytes // x.shape[0],
            "channel_count": channels,
            "output_height": out.shape[1],
            "output_width": out.shape[2],
            "output_row_step": window.strides[0] * row,
            "output_column_step": window.strides[1] * channels,
            "tap_rows": window.size[1 if turned else 0],
            "tap_columns": window.size[0 if turned else 1],
            "tap_row_step": steps[1 if turned else 0],
            "tap_column_step": steps[0 if turned else 1],
        }
        spec = (("requantize", plan.form.value),)
        return KernelCall(
            CFunction("depthwise_conv2d/dsp_taps.c.j2", self.name, spec, self.fields),
            parameters | dict(bounds),
        )
