"""int16 convolution, int8 weights, for Helium."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.conv2d.portable import (
    PATCH_FIELDS,
    conv_types,
    filter_matrix,
    is_pointwise,
    patch_parameters,
)
from microfold.kernels.conv2d.s16_dsp import int16_plan, unsupported_int16_conv
from microfold.kernels.fields import Field, Fields, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import mve, product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.int16_single_rounding import CHUNK, Int16Requantization
from microfold.ops.convolution.conv2d import Conv2D

# Elements of int16 in a vector.
LANES = 8


@register
class Conv2DInt16Mve(Kernel):
    """One pixel by four channels, eight products an instruction, in a tail-predicated loop.

    `row_constants` has the layout, int8 [channels / 4][vectors][4][8]; `plan_int16_requantization` proves the
    form of the records, and whether sums need 64 bits.
    """

    name = "s16_conv2d__mve_1x4"
    op = Conv2D
    features = frozenset({"mve"})

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_int16_conv(layer)

    def cost(self, layer: LayerContext) -> float:
        x, weights, out, window = conv_types(layer)
        plan = int16_plan(layer)
        assert plan is not None
        depth = weights.size // weights.shape[0]
        pixels = out.size // out.shape[3]
        pixel = row_cost(plan, depth, out.shape[3])
        if not is_pointwise(window):
            segment = x.shape[3] * (1 if window.dilations[1] > 1 else window.size[1])
            segments = depth // segment
            pixel += 50 + segments * (18 + 3 * -(-segment // LANES))
        return pixels * pixel + 40

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        return window_overlap(x, out, window, 1, reads_first=not is_pointwise(window))

    def reads_rows(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def rows_held(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = conv_types(layer)
        plan = int16_plan(layer)
        assert plan is not None
        clamp, limits = output_range.proved_clamping(layer)
        pointwise = is_pointwise(window)
        matrix = filter_matrix(layer)
        spec = (
            ("requantize", plan.form),
            ("long", plan.long),
            ("clamp", clamp),
            ("pointwise", pointwise),
            ("dilated", window.dilations[1] > 1),
        )
        parameters: dict[str, Parameter] = {
            **row_constants(plan, matrix),
            "patch": matrix.shape[1],
            "output_channels": out.shape[3],
        }
        fields = (*row_fields(plan), *PATCH_FIELDS, *output_range.LIMIT_FIELDS)
        traversal, scratch = patch_parameters(layer, matrix.shape[1] * x.dtype.itemsize)
        parameters |= traversal
        return KernelCall(
            CFunction("conv2d/s16_mve.c.j2", self.name, spec, fields), parameters | limits, scratch
        )


def row_fields(plan: Int16Requantization) -> Fields:
    """Those of `row_constants`."""
    once = plan.form == "once"
    return declare(
        Field("weights", "[outputs / 4][inputs / 8, rounded up][4][8]"),
        Field("channels", "[outputs / 4][3][4]: bias, multiplier, -shift" if once else ""),
    )


def row_constants(plan: Int16Requantization, matrix: Array) -> Mapping[str, Parameter]:
    """Weights, int8 [blocks of 4 channels, vectors, 4, 8], and records of the channels.

    Args:
        matrix: the weights as [channels, K].
    """
    padded = product_sum.pad_channels(matrix, mve.BLOCK)
    padded = np.pad(padded, ((0, 0), (0, -padded.shape[1] % LANES)))
    blocks = padded.reshape(padded.shape[0] // mve.BLOCK, mve.BLOCK, -1, LANES)
    weights = np.ascontiguousarray(blocks.swapaxes(1, 2))
    if plan.form == "once":
        bias, multiplier, _, shift = plan.records.T
        channels = Constant("channels", mve.block_records(np.stack([bias, multiplier, -shift], axis=1)))
    else:
        padded_records = product_sum.pad_records(plan.records, mve.BLOCK)
        channels = Constant("channels", padded_records, record="mf_channel")
    return {"weights": Constant("weights", weights), "channels": channels}


def row_cost(plan: Int16Requantization, depth: int, channels: int) -> float:
    """Estimated instructions of all outputs of one row of inputs."""
    vectors = -(-depth // LANES)
    finish = 29.0 if plan.form == "once" else 260.0 + 40.0 * -(-depth // CHUNK)
    return -(-channels // mve.BLOCK) * (10 * vectors + finish) + 25
