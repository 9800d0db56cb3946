"""int8 depthwise convolution for cores with the DSP extension.

A layer is split into bands of output rows, see `BandTiling`. The inputs of a band are expanded to planes, one
for each channel. A word of a plane has two adjacent inputs along the inner axis, multiplied by 256. SMLAD
multiplies them by pairs of taps. `requantize.scaled_accumulator` has the proof for these scaled sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.dsp_tiling import BandTiling, tilings, too_tall
from microfold.kernels.depthwise_conv2d.portable import (
    channel_multiplier,
    depthwise_matrix,
    depthwise_types,
    unsupported_integer_depthwise,
)
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.kernels.requantize.scaled_accumulator import (
    PLANE_LIMIT,
    PlaneRequantization,
    plan_biasless_plane,
    plan_plane_requantization,
)
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D

# Maximum number of taps along the unrolled axis, and of taps in all, whose weights are words on the stack.
MAX_TAPS = 16
MAX_WORDS = 128


# Default coefficients, counted in the code, of the parts in which the loops of tilings differ.
INSTRUCTIONS = {
    "expansion": 60,
    "row": 28,
    "pair": 4,
    "pair_lane": 2.5,
    "filter": 55,
    "tap_row": 4,
    "tap": 3,
    "block": 5,
    "load": 1,
    "weight": 0.8,
    "product": 1,
    "loop": 4,
    "finished_short": 6,
    "finished_short_relu": 4,
    "finished_general": 40,
    "assembled_short": 27,
    "assembled_short_relu": 19,
    "assembled_row_1": 12,
    "assembled_row_2": 14,
}


def _fits(tiling: BandTiling) -> bool:
    inner, outer = tiling.inner, tiling.outer
    return inner.taps <= MAX_TAPS and outer.taps * inner.taps <= MAX_WORDS


@register
class DepthwiseConv2DDsp(Kernel, Struct, frozen=True, eq=False):
    """Depthwise convolution that expands 4 channels to planes of 16-bit pairs, then multiplies pairs of taps.

    `weights` is int8 [output channels][outer taps][inner taps]. `channels` has records (bias * 256,
    multiplier, addend, shift) or (multiplier, addend), because inputs are multiplied by 256.
    `plane_requantization` proves their form.

    Vertical tilings do not support an indirection buffer, because adjacent pixels along their inner axis are
    in different rows.

    Attributes:
        cut: tiling of the layer; None until it is chosen.
        form: form of the requantisation, for estimates.
        assembled: whether the assembly supports this requantisation.
    """

    cut: BandTiling | None = None
    form: str = ""
    assembled: bool = False

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
        Field("plane", "words of one channel's plane"),
        Field("pitch", "words from one row of a plane to the next"),
        Field("row_step", "words from one row of outputs, and of taps, to the next"),
        "tap_step",
        Field("padding", "the input's zero point in all four bytes"),
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )
    pitch_fields = frozenset({"input_size", "outer_input_step"})

    def supports(self, layer: LayerContext) -> str | None:
        # The instruction order for cores with late loads has no slot for a table lookup.
        reason = unsupported_integer_depthwise(layer, tables=not layer.target.has("late_loads"))
        reason = reason or too_tall(layer)
        if reason is not None:
            return reason
        if not self.variants(layer):
            return f"the window may have at most {MAX_TAPS} taps along one axis and {MAX_WORDS} in all"
        _, (low, high) = product_sum.bias_and_bounds(layer, depthwise_matrix(layer))
        largest = max(int(high.max()), -int(low.min()))
        if plane_requantization(layer) is None:
            return f"accumulators must stay below {PLANE_LIMIT}; they reach {largest}"
        return None

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        fitting = [tiling for tiling in tilings(layer) if _fits(tiling)]
        plan = plane_requantization(layer)
        if plan is None:
            return [replace(self, cut=tiling) for tiling in fitting]
        plain = output_range.output_limits(layer) == depthwise_types(layer)[2].dtype.range
        assembled = plain and bool(plan.shift) and not plan.general
        # Without biases, outputs need as many instructions as without correction of negative sums.
        form = RequantizeForm.SHORT_RELU.value if plan.biasless else plan.form
        return [replace(self, cut=tiling, form=form, assembled=assembled) for tiling in fitting]

    @property
    def _tiling(self) -> BandTiling:
        assert self.cut is not None
        return self.cut

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1) + self._tiling.terms(self.form, self.assembled) + output_table.table_terms(layer)

    def default_coefficient(self, term: str) -> float:
        return INSTRUCTIONS.get(term, super().default_coefficient(term))

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return None if self._tiling.in_place else self._tiling.overlap

    def in_place(self, layer: LayerContext, index: int) -> bool:
        return self._tiling.in_place

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not self._tiling.vertical

    def row_release_granularity(self, layer: LayerContext) -> int:
        return self._tiling.band

    def lower(self, layer: LayerContext) -> KernelCall:
        tiling = self._tiling
        plan = plane_requantization(layer)
        assert plan is not None
        x, out, inner, outer = tiling.x, tiling.out, tiling.inner, tiling.outer
        assert x.quant is not None
        low, high = output_range.output_limits(layer)
        looked_up = output_table.is_table(layer.node)
        clamp = (plan.general or (low, high) != out.dtype.range) and not looked_up
        spec: tuple[tuple[str, SpecValue], ...] = (
            ("outer_taps", outer.taps),
            ("taps", inner.taps),
            ("stride", inner.stride),
            ("dilation", inner.dilation),
            ("lanes", tiling.lanes),
            ("requantize", plan.form),
            ("shift", plan.shift),
            ("clamp", clamp),
            *output_table.table_spec(layer.node),
            ("late_loads", layer.target.has("late_loads")),
            ("dual_issue", layer.target.has("dual_issue")),
        )
        steps_in, steps_out = tiling.steps(x), tiling.steps(out)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", _packed(layer, tiling)),
            "channels": Constant(
                "channels", plan.records, record="mf_biasless" if plan.biasless else "mf_channel"
            ),
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
        parameters |= output_table.table_parameters(layer.node)
        if outer.taps == 1:
            del parameters["tap_step"]
        if clamp:
            parameters |= {"output_minimum": low, "output_maximum": high}
        return KernelCall(
            CFunction("depthwise_conv2d/dsp.c.j2", self.name, spec, self.fields), parameters, tiling.scratch
        )


def _packed(layer: LayerContext, tiling: BandTiling) -> Array:
    """Return the filters as int8 [output channels, outer taps, inner taps]."""
    filters = layer.array(1)
    assert filters is not None
    order = (2, 1, 0) if tiling.vertical else (2, 0, 1)
    return np.ascontiguousarray(filters[0].transpose(order))


# The result is cached, because several kernels ask for it in turn.
@lru_cache(maxsize=8)
def plane_requantization(layer: LayerContext) -> PlaneRequantization | None:
    """Return the shortest requantisation that is proved exact; None if accumulators may be too large."""
    out = depthwise_types(layer)[2]
    assert out.quant is not None
    multipliers = product_sum.channel_multipliers(layer)
    bias, bounds = product_sum.bias_and_bounds(layer, depthwise_matrix(layer))
    limits = output_range.integer_bounds(layer.node)
    zero_point = out.quant.zero_point
    biasless = plan_biasless_plane(bias, bounds, multipliers, zero_point, limits)
    return biasless or plan_plane_requantization(bias, bounds, *multipliers, zero_point, limits)
