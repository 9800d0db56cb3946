"""Convolution kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.ir.types import Array, DType, TensorType
from microfold.kernels import epilogue, requantize
from microfold.kernels.kernel import Call, Constant, Function, Kernel, Parameter, Site, register
from microfold.kernels.overlap import window_overlap
from microfold.ops.accumulate import output_multipliers
from microfold.ops.conv2d import Conv2D
from microfold.ops.window import Window


def conv_types(site: Site) -> tuple[TensorType, TensorType, TensorType, Window]:
    """Types of input, filter and output, and the window."""
    x, weights = site.node.inputs[0], site.node.inputs[1]
    assert x is not None and weights is not None and isinstance(site.node.op, Conv2D)
    return x.type, weights.type, site.node.outputs[0].type, site.node.op.window(weights.type)


def is_pointwise(window: Window) -> bool:
    """Output pixels are input pixels: no patch has to be gathered."""
    return window.size == window.strides == (1, 1) and window.padding == ((0, 0), (0, 0))


def unsupported_integer_conv(site: Site) -> str | None:
    """The conditions that all int8 convolution kernels share."""
    x, weights, _, _ = conv_types(site)
    if x.dtype is not DType.INT8 or weights.dtype is not DType.INT8:
        return f"it needs int8 activations and weights; they are {x.dtype.value} and {weights.dtype.value}"
    if site.array(1) is None or (site.present(2) and site.array(2) is None):
        return "filter and bias must be constant"
    if weights.shape[3] != x.shape[3]:
        return "it does not compute grouped convolutions"
    return epilogue.unsupported_epilogue(site.node)


def shape_parameters(site: Site) -> dict[str, Parameter]:
    """Fields that every convolution layer struct has; dilated windows keep their steps."""
    x, _, out, window = conv_types(site)
    return {
        "batch": x.shape[0],
        "input_height": x.shape[1],
        "input_width": x.shape[2],
        "input_channels": x.shape[3],
        "output_height": out.shape[1],
        "output_width": out.shape[2],
        "output_channels": out.shape[3],
        "kernel_height": window.size[0],
        "kernel_width": window.size[1],
        "stride_height": window.strides[0],
        "stride_width": window.strides[1],
        "dilation_height": window.dilations[0],
        "dilation_width": window.dilations[1],
        "pad_top": window.padding[0][0],
        "pad_left": window.padding[1][0],
    }


def channel_records(site: Site, matrix: Array) -> tuple[requantize.Requantization, Mapping[str, Parameter]]:
    """Requantisation of an int8 convolution, and the output bounds as layer fields.

    Args:
        matrix: the filter as [channels, K].
    """
    x, weights, out, _ = conv_types(site)
    assert x.quant is not None and weights.quant is not None and out.quant is not None
    bias = requantize.fold_zero_point(matrix, site.array(2), x.quant.zero_point)
    bounds = requantize.accumulator_bounds(matrix, bias, *x.dtype.range)
    multipliers = output_multipliers(x.quant, weights.quant, out.quant, weights.shape[0])
    low, high = epilogue.integer_bounds(site.node)
    plan = requantize.plan_requantization(bias, bounds, *multipliers, out.quant.zero_point, low)
    return plan, {"output_minimum": low, "output_maximum": high}


@register
class Conv2DPortable(Kernel):
    """Gathers the patches of two pixels, then computes blocks of 2 pixels by 2 channels."""

    name = "s8_conv2d__c_2x2"
    op = Conv2D
    PIXELS = 2

    def supports(self, site: Site) -> str | None:
        return unsupported_integer_conv(site)

    def cost(self, site: Site) -> float:
        _, weights, out, _ = conv_types(site)
        depth = weights.size // weights.shape[0]
        return out.size * (2.6 * depth + 20)

    def overlap(self, site: Site, index: int) -> int | None:
        x, _, out, window = conv_types(site)
        # Every output channel needs the whole patch: in pointwise layers it is read in place.
        return window_overlap(x, out, window, self.PIXELS, reads_first=not is_pointwise(window))

    def lower(self, site: Site) -> Call:
        x, weights, _, window = conv_types(site)
        assert x.quant is not None
        filters = site.array(1)
        assert filters is not None
        matrix = filters.reshape(weights.shape[0], -1)
        plan, bounds = channel_records(site, matrix)
        pointwise = is_pointwise(window)
        parameters = shape_parameters(site) | bounds
        parameters |= {
            "patch": matrix.shape[1],
            "input_zero_point": x.quant.zero_point,
            "weights": Constant("weights", np.ascontiguousarray(matrix)),
            "channels": Constant("channels", plan.records, record="mf_channel"),
        }
        spec = (("requantize", plan.form.value), ("pointwise", pointwise))
        scratch = 0 if pointwise else self.PIXELS * matrix.shape[1]
        return Call(Function("conv2d/c.c.j2", self.name, spec), parameters, scratch)
