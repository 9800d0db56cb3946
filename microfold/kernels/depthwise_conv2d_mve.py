"""Depthwise convolution kernels for Helium."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels import mve
from microfold.kernels.depthwise_conv2d import (
    channel_multiplier,
    depthwise_matrix,
    depthwise_types,
    unsupported_integer_depthwise,
)
from microfold.kernels.kernel import Call, Constant, Function, Kernel, Parameter, Site, register
from microfold.kernels.overlap import window_overlap
from microfold.ops.accumulate import output_multipliers
from microfold.ops.depthwise_conv2d import DepthwiseConv2D

_ROWS = 4  # rows that are interleaved: a word holds 4 of them, of one column and channel
_SLACK = 64  # bytes behind the band: the last interleaved vectors are written whole


def _requantization(site: Site) -> tuple[mve.Form, Array]:
    x, weights, out, _ = depthwise_types(site)
    assert x.quant is not None and weights.quant is not None and out.quant is not None
    multipliers = output_multipliers(x.quant, weights.quant, out.quant, weights.shape[3])
    return mve.requantization(site, depthwise_matrix(site), multipliers)


@register
class DepthwiseConv2DMve(Kernel):
    """Interleaves the rows under the window by fours, so that words hold the taps of one column and channel.

    A vector gathers four words. Computes 4 channels at a time.
    """

    name = "s8_depthwise_conv2d__mve_4"
    op = DepthwiseConv2D
    features = frozenset({"mve"})

    def supports(self, site: Site) -> str | None:
        return unsupported_integer_depthwise(site)

    def cost(self, site: Site) -> float:
        x, _, out, window = depthwise_types(site)
        form, _ = _requantization(site)
        groups = -(-window.size[0] // _ROWS)
        vectors = -(-groups * window.size[1] // 4)
        load = groups * (x.shape[2] * x.shape[3] / 16 * 13 + 60)
        block = 8 * vectors + (4 * vectors if vectors > 1 else 0) + 10 + mve.finish_cost(form)
        row = -(-out.shape[3] // mve.BLOCK) * (out.shape[2] * block + 16)
        return out.shape[0] * out.shape[1] * (load + row + 20)

    def overlap(self, site: Site, index: int) -> int | None:
        x, _, out, window = depthwise_types(site)
        return window_overlap(x, out, window, out.shape[2])

    def lower(self, site: Site) -> Call:
        x, _, out, window = depthwise_types(site)
        assert x.quant is not None
        form, records = _requantization(site)
        clamp, fields = mve.output_parameters(site)
        groups = -(-window.size[0] // _ROWS)
        pad_left = window.padding[1][0]
        span = (out.shape[2] - 1) * window.strides[1] + window.extent[1]
        columns = max(span, pad_left + x.shape[2])
        band = columns * x.shape[3] * 4 + _SLACK
        words = [
            (group, column) for group in range(groups) for column in range(window.size[1])
        ]
        offsets = [g * band + j * window.dilations[1] * x.shape[3] * 4 for g, j in words]
        vectors = -(-len(words) // 4)
        offsets += [0] * (4 * vectors - len(words))
        multiplier = channel_multiplier(site)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", _pack(site.array(1), vectors)),
            "channels": Constant("channels", mve.block_records(records)),
            "taps": Constant("taps", np.array(offsets, np.uint32)),
            "batch": x.shape[0],
            "input_height": x.shape[1],
            "input_width": x.shape[2],
            "input_channels": x.shape[3],
            "output_height": out.shape[1],
            "output_width": out.shape[2],
            "output_channels": out.shape[3],
            "kernel_height": window.size[0],
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
        )
        # The last block of channels may reach behind the last pixel.
        scratch = groups * band
        return Call(Function("depthwise_conv2d/mve.c.j2", self.name, spec), parameters, scratch)


def _pack(filters: Array | None, vectors: int) -> Array:
    """[1, KH, KW, channels] to [blocks, vectors, 4, 16]: the taps of a channel as words of 4 rows."""
    assert filters is not None
    _, height, width, channels = filters.shape
    taps = np.pad(filters[0], ((0, -height % _ROWS), (0, 0), (0, -channels % mve.BLOCK)))
    words = taps.reshape(-1, _ROWS, width, taps.shape[2]).transpose(3, 0, 2, 1)
    flat = words.reshape(words.shape[0], -1)
    flat = np.pad(flat, ((0, 0), (0, vectors * mve.LANES - flat.shape[1])))
    return np.ascontiguousarray(flat.reshape(-1, mve.BLOCK, vectors, mve.LANES).swapaxes(1, 2))
