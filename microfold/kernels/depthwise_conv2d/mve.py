"""int8 depthwise convolution for Helium (MVE) that gathers the words of a channel's window."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.mve_bands import (
    OUTSIDE,
    ROWS,
    SLACK,
    is_pipelined,
    load_terms,
    requantization,
)
from microfold.kernels.depthwise_conv2d.portable import (
    channel_multiplier,
    depthwise_types,
    unsupported_integer_depthwise,
)
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import band_overlap
from microfold.kernels.packing import mve
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import IMAGE_FIELDS, image_parameters
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D


def _rows_of_band(layer: LayerContext) -> int:
    """Return the rows of outputs of a band, so that all their windows fit one group of interleaved rows.

    Code that is not pipelined computes one row, because every number of rows needs a separate function.
    """
    window = depthwise_types(layer)[3]
    free = ROWS - window.size[0]
    if free < 0 or window.dilations[0] > 1 or not _rows_pipelined(layer):
        return 1
    return free // window.strides[0] + 1


def _rows_pipelined(layer: LayerContext) -> bool:
    """Return whether patches are one vector, whose sums overlap with the previous requantisation."""
    form, _ = requantization(layer)
    clamp, _ = mve.output_parameters(layer)
    _, _, out, window = depthwise_types(layer)
    single = -(-window.size[0] // ROWS) * window.size[1] <= 4 and channel_multiplier(layer) == 1
    return is_pipelined(layer, form, clamp) and single and out.shape[3] % mve.BLOCK == 0


@register
class DepthwiseConv2DMve(Kernel):
    """Depthwise convolution of 4 channels at a time, from bands of 4 interleaved rows.

    A word of the band has the inputs of 4 rows in one column and channel. A vector gathers four words, at the
    offsets in `taps`. `weights` is [channels / 4][vectors][4][16], see `_pack`. `channels` has the
    `mve.block_words` of `requantization`, the shortest exact form.

    If words have room for the windows of several rows of outputs, these rows are computed from one band. All
    rows share the weights; rows above the last one read them from a later byte on.
    """

    name = "s8_depthwise_conv2d__mve_4"
    op = DepthwiseConv2D
    features = frozenset({"mve"})
    code = 650
    fields = declare(
        "weights",
        "channels",
        "taps",
        *IMAGE_FIELDS,
        "output_channels",
        "band_rows",
        "stride_height",
        "stride_width",
        "dilation_height",
        "pad_top",
        "pad_left",
        Field("columns", "columns of the band, including padding"),
        Field("band", "bytes from one group of 4 rows to the next"),
        Field("multiplier", "output channels per input channel"),
        "input_zero_point",
        "output_zero_point",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_integer_depthwise(layer)

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out, window = depthwise_types(layer)
        form, _ = requantization(layer)
        groups = -(-window.size[0] // ROWS)
        vectors = -(-groups * window.size[1] // 4)
        blocks = -(-out.shape[3] // mve.BLOCK)
        rows = out.shape[0] * out.shape[1]
        bands = out.shape[0] * -(-out.shape[1] // _rows_of_band(layer))
        filled = Terms(call=1) + bands * load_terms(x, groups)
        if _rows_pipelined(layer):
            return filled + rows * Terms(beside_row=1, beside=blocks, beside_output=blocks * out.shape[2])
        single = vectors == 1 and channel_multiplier(layer) == 1
        gathers = Terms(single_gather=1) if single else Terms(gather=vectors)
        block = Terms(block=1) + out.shape[2] * (Terms(output=1) + gathers + mve.finish_terms(form))
        return filled + rows * (Terms(row=1) + blocks * block)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = depthwise_types(layer)
        return band_overlap(x, out, window, out.shape[2], _rows_of_band(layer))

    def row_granularity(self, layer: LayerContext) -> int:
        return _rows_of_band(layer)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return _rows_of_band(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = depthwise_types(layer)
        assert x.quant is not None
        form, records = requantization(layer)
        clamp, fields = mve.output_parameters(layer)
        groups = -(-window.size[0] // ROWS)
        pad_left = window.padding[1][0]
        span = (out.shape[2] - 1) * window.strides[1] + window.extent[1]
        columns = max(span, pad_left + x.shape[2])
        band = columns * x.shape[3] * 4 + SLACK
        words = [(group, column) for group in range(groups) for column in range(window.size[1])]
        offsets = [g * band + j * window.dilations[1] * x.shape[3] * 4 for g, j in words]
        vectors = -(-len(words) // 4)
        offsets += [0] * (4 * vectors - len(words))
        multiplier = channel_multiplier(layer)
        rows = _rows_of_band(layer)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", _pack(layer.array(1), vectors, rows, window.strides[0])),
            "channels": Constant("channels", mve.block_words(records)),
            "taps": Constant("taps", np.array(offsets, np.uint32)),
            **image_parameters(x, out),
            "output_channels": out.shape[3],
            "band_rows": window.size[0],
            "stride_height": window.strides[0],
            "stride_width": window.strides[1],
            "dilation_height": window.dilations[0],
            "pad_top": window.padding[0][0],
            "pad_left": pad_left,
            "columns": columns,
            "band": band,
            "input_zero_point": x.quant.zero_point,
            **fields,
        }
        if multiplier > 1:
            parameters["multiplier"] = multiplier
        spec = (
            *mve.finish_spec(form, clamp, out.shape[3]),
            ("vectors", vectors),
            ("multiplier", multiplier > 1),
            ("rows", rows),
            ("pipelined", _rows_pipelined(layer)),
        )
        # The last block of channels may reach beyond the last pixel.
        scratch = OUTSIDE + groups * band
        described = describe(
            self.fields,
            weights="[blocks of 4 channels]" + (f"[{vectors}]" if vectors > 1 else "") + "[4][16]",
            channels=f"[blocks]{mve.record_order(form)}",
            taps=f"[{vectors}][4], offsets of the words of a patch in the band",
        )
        return KernelCall(
            CFunction("depthwise_conv2d/mve.c.j2", self.name, spec, described), parameters, scratch
        )


def _pack(filters: Array | None, vectors: int, rows: int, stride: int) -> Array:
    """Pack [1, KH, KW, channels] as [blocks, vectors, 4, 16], with the taps of a channel as words of 4 rows.

    Args:
        rows: rows of outputs of a band. The words are packed for the last row and begin with zeros. The words
            for other rows begin some bytes later, so that zeros follow the last block.
        stride: rows of inputs from one row of outputs to the next.
    """
    assert filters is not None
    _, height, width, channels = filters.shape
    above = (rows - 1) * stride
    taps = np.pad(filters[0], ((above, -(above + height) % ROWS), (0, 0), (0, -channels % mve.BLOCK)))
    words = taps.reshape(-1, ROWS, width, taps.shape[2]).transpose(3, 0, 2, 1)
    flat = words.reshape(words.shape[0], -1)
    flat = np.pad(flat, ((0, 0), (0, vectors * mve.LANES - flat.shape[1])))
    blocks = np.ascontiguousarray(flat.reshape(-1, mve.BLOCK, vectors, mve.LANES).swapaxes(1, 2))
    return blocks if rows == 1 else np.pad(blocks.reshape(-1), (0, above))
