"""Generic int8 depthwise convolution for cores with the DSP extension: one function for all layers.

The compile-time choices of `depthwise_conv2d.dsp` are fields of the layer here, so that all layers share the
code.
"""

from __future__ import annotations

import math

import numpy as np

from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.dsp_tiling import WindowAxis, axes
from microfold.kernels.depthwise_conv2d.portable import (
    channel_records,
    depthwise_types,
    plane_in_place,
    unsupported_integer_depthwise,
)
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.support.frozen import frozen

# Number of outputs that are computed together.
BLOCK = 4


@frozen
class _Plane:
    """Padded copy of a channel, of the size that blocks of outputs along the inner axis read."""

    outer: WindowAxis
    inner: WindowAxis
    vertical: bool

    @property
    def blocks(self) -> int:
        return self.outer.outputs * -(-self.inner.outputs // BLOCK)

    @property
    def tap_blocks(self) -> int:
        """Number of blocks of 4 in a row of taps, including the gaps of a dilated window."""
        return -(-self.inner.span // 4)

    @property
    def pitch(self) -> int:
        return self.inner.reads(self.inner.outputs)

    @property
    def size(self) -> int:
        """Number of elements of the plane, which is first filled with padding."""
        return self.pitch * self.outer.reads(self.outer.outputs)

    @property
    def scratch(self) -> int:
        """Size of the taps, the plane, and the bytes after it that missing outputs and taps read."""
        behind = (
            max(BLOCK - self.inner.outputs, 0) * self.inner.stride + 4 * self.tap_blocks - self.inner.span
        )
        return 8 * self.outer.taps * self.tap_blocks + self.size + behind

    @property
    def instructions(self) -> float:
        """Estimated instructions for one channel of an image."""
        copied = math.prod(min(a.inputs, a.reads(a.outputs)) for a in (self.outer, self.inner))
        products = self.outer.taps * (24 * self.tap_blocks + 5)
        return copied * 6 + self.blocks * (products + 69) + self.outer.outputs * 15 + 100


def _plan_plane(layer: LayerContext) -> _Plane:
    """Return the plane with the cheaper inner axis. With an indirection buffer, rows are the outer axis."""
    rows, columns = axes(layer)
    if layer.indirection_buffer:
        return _Plane(rows, columns, False)
    return min((_Plane(rows, columns, False), _Plane(columns, rows, True)), key=lambda p: p.instructions)


@register
class DepthwiseConv2DCompactDsp(Kernel):
    """Generic depthwise convolution that copies a channel to a padded plane and computes 4 outputs at a time.

    `weights` is [channels][outer taps][inner taps]. `channels` has records (bias, multiplier, addend, shift),
    whose form `channel_records` proves. The inner axis is the one with fewer instructions. With an
    indirection buffer, rows are always the outer axis.
    """

    name = "s8_depthwise_conv2d__dsp_compact"
    op = DepthwiseConv2D
    features = frozenset({"dsp"})
    trades = frozenset({ResourceTradeoff.GENERIC_FUNCTION})
    code = 850
    fields = declare(
        Field("weights", "[channels][outer taps][inner taps]"),
        "channels",
        "channel_count",
        "batch",
        Field("input_size", "bytes of an image"),
        "output_size",
        Field(
            "outer_inputs",
            "pixels that are copied along the outer and the inner axis, and bytes between them",
        ),
        "inner_inputs",
        "outer_input_step",
        "inner_input_step",
        "outer_outputs",
        "inner_outputs",
        "outer_output_step",
        "inner_output_step",
        "outer_taps",
        "inner_taps",
        "inner_dilation",
        Field("tap_blocks", "blocks of 4 in a row of taps"),
        "plane_size",
        Field("plane_start", "offset of the image in the plane"),
        Field("pitch", "bytes from one row of the plane to the next, of outputs, and of taps"),
        "row_step",
        "tap_step",
        "inner_stride",
        "input_zero_point",
        Field("correction", "correction of negative sums"),
        Field("clamp", "1 if the limits are narrower than int8, else 0"),
        *output_range.LIMIT_FIELDS,
    )
    pitch_fields = frozenset({"input_size", "outer_input_step"})

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_depthwise(layer)
        if reason is not None:
            return reason
        x, _, out, _ = depthwise_types(layer)
        if not plane_in_place(x, out):
            return "the output must be computable in place, channel by channel"
        return None

    def terms(self, layer: LayerContext) -> Terms:
        x, plane = depthwise_types(layer)[0], _plan_plane(layer)
        channels, taps = x.shape[3], plane.outer.taps * plane.inner.taps
        planned = x.shape[0] * channels * plane.instructions
        return Terms(call=1, channel=channels, tap=channels * taps, planned=planned)

    def in_place(self, layer: LayerContext, index: int) -> bool:
        return True

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, _ = depthwise_types(layer)
        plane = _plan_plane(layer)
        inner, outer = plane.inner, plane.outer
        filters = layer.array(1)
        assert x.quant is not None and filters is not None
        plan, bounds = channel_records(layer)
        general = plan.form is RequantizeForm.GENERAL
        steps_in = (x.shape[2] * x.shape[3], x.shape[3])
        steps_out = (out.shape[2] * out.shape[3], out.shape[3])
        if plane.vertical:
            steps_in, steps_out = steps_in[::-1], steps_out[::-1]
        copied = [max(min(a.inputs, a.reads(a.outputs) - a.padding), 0) for a in (outer, inner)]
        parameters: dict[str, Parameter] = {
            "weights": Constant(
                "weights",
                np.ascontiguousarray(filters[0].transpose((2, 1, 0) if plane.vertical else (2, 0, 1))),
            ),
            "channels": Constant("channels", plan.records, record="mf_channel"),
            "channel_count": x.shape[3],
            "batch": x.shape[0],
            "input_size": x.nbytes // x.shape[0],
            "output_size": out.nbytes // x.shape[0],
            "outer_inputs": copied[0],
            "inner_inputs": copied[1],
            "outer_input_step": steps_in[0],
            "inner_input_step": steps_in[1],
            "outer_outputs": outer.outputs,
            "inner_outputs": inner.outputs,
            "outer_output_step": steps_out[0],
            "inner_output_step": steps_out[1],
            "outer_taps": outer.taps,
            "inner_taps": inner.taps,
            "inner_dilation": inner.dilation,
            "tap_blocks": plane.tap_blocks,
            "plane_size": plane.size,
            "plane_start": outer.padding * plane.pitch + inner.padding,
            "pitch": plane.pitch,
            "row_step": plane.pitch * outer.stride,
            "tap_step": plane.pitch * outer.dilation,
            "inner_stride": inner.stride,
            "input_zero_point": x.quant.zero_point,
        }
        if not general:
            parameters |= {
                "clamp": int((bounds["output_minimum"], bounds["output_maximum"]) != (-128, 127)),
                "correction": 2 if plan.form is RequantizeForm.SHORT else 0,
            }
        spec: tuple[tuple[str, SpecValue], ...] = (("general", general),)
        return KernelCall(
            CFunction("depthwise_conv2d/dsp_compact.c.j2", self.name, spec, self.fields),
            parameters | dict(bounds),
            plane.scratch,
        )
