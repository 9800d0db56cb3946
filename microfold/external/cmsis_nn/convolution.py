"""Convolutions through CMSIS-NN."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.external.cmsis_nn import library, scratch
from microfold.external.cmsis_nn.library import CMSIS_NN
from microfold.external.cmsis_nn.scratch import Geometry
from microfold.ir.types import Array, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import (
    DENSE_WINDOW_FIELDS,
    IMAGE_FIELDS,
    dense_window_parameters,
    image_parameters,
)
from microfold.ops.accumulate import output_multipliers
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.window import Window, same_padding

_SHAPE_FIELDS = declare(*IMAGE_FIELDS, "output_channels", *DENSE_WINDOW_FIELDS)


class _Convolution(Kernel):
    """Base class of the two convolutions."""

    function: str
    template: str

    def types(self, layer: LayerContext) -> tuple[TensorType, TensorType, TensorType]:
        """Return the types of input, filters and output."""
        x, weights = layer.node.inputs[0], layer.node.inputs[1]
        assert x is not None and weights is not None
        return x.type, weights.type, layer.node.outputs[0].type

    def geometry(self, layer: LayerContext) -> Geometry:
        x, weights, out = self.types(layer)
        assert isinstance(layer.node.op, Conv2D | DepthwiseConv2D)
        window: Window = layer.node.op.window(weights)
        return Geometry(
            (x.shape[1], x.shape[2]), x.shape[3], (out.shape[1], out.shape[2]), out.shape[3], window
        )

    def matrix(self, layer: LayerContext) -> Array:
        """Return the filters as [channels, K]."""
        raise NotImplementedError

    def multipliers(self, layer: LayerContext) -> tuple[Array, Array]:
        x, weights, out = self.types(layer)
        assert x.quant is not None and weights.quant is not None and out.quant is not None
        return output_multipliers(x.quant, weights.quant, out.quant, out.shape[3])

    def supports(self, layer: LayerContext) -> str | None:
        reason = product_sum.unsupported_int8_constants(layer) or self.unsupported_shape(layer)
        if reason is not None:
            return reason
        matrix = self.matrix(layer)
        reason = product_sum.unsupported_bounds(layer, matrix)
        if reason is not None:
            return reason
        mantissas, shifts = self.multipliers(layer)
        _, bounds = product_sum.bias_and_bounds(layer, matrix)
        return library.unsupported_shifts(shifts, mantissas, bounds)

    def unsupported_shape(self, layer: LayerContext) -> str | None:
        """Return why the function does not support this window, or None."""
        return library.unsupported_extents(*self.types(layer))

    def call(
        self,
        layer: LayerContext,
        weights: Array,
        constants: Mapping[str, Parameter],
        size: int,
        more: Mapping[str, int],
    ) -> KernelCall:
        """Return the call; `more` are the fields that only one of the two functions has."""
        x, _, out = self.types(layer)
        assert x.quant is not None and out.quant is not None
        shape = self.geometry(layer)
        low, high = output_range.integer_bounds(layer.node)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", weights),
            **constants,
            **image_parameters(x, out),
            "output_channels": shape.filters,
            **dense_window_parameters(shape.window),
            **more,
            "input_offset": -x.quant.zero_point,
            "output_offset": out.quant.zero_point,
            "output_minimum": low,
            "output_maximum": high,
        }
        if size:
            parameters |= {"scratch_size": size}
        spec = (("scratch", size > 0),)
        function = CFunction(
            self.template,
            self.name,
            spec,
            self.fields,
            CMSIS_NN,
            (self.function, f"{self.function}_get_buffer_size"),
        )
        return KernelCall(function, parameters, size)


class ConvolveS8(_Convolution):
    """int8 convolution by ``arm_convolve_wrapper_s8``."""

    name = "s8_conv2d__cmsis_nn"
    op = Conv2D
    function = "arm_convolve_wrapper_s8"
    template = "external/cmsis_nn/conv2d.c.j2"
    fields = declare(
        Field("weights", "[output_channels][kernel_height][kernel_width][input_channels]"),
        *library.CHANNEL_FIELDS,
        *_SHAPE_FIELDS,
        "dilation_height",
        "dilation_width",
        *library.OUTPUT_FIELDS,
        "scratch_size",
    )

    def matrix(self, layer: LayerContext) -> Array:
        weights = layer.array(1)
        assert weights is not None
        return weights.reshape(weights.shape[0], -1)

    def unsupported_shape(self, layer: LayerContext) -> str | None:
        x, weights, _ = self.types(layer)
        if weights.shape[3] != x.shape[3]:
            return f"the number of channel groups must be 1; it is {x.shape[3] // weights.shape[3]}"
        shape = self.geometry(layer)
        window = shape.window
        # The library receives the padding at top and left only; in these two cases it guesses the rest.
        if window.size == (1, 1) and any(side for pair in window.padding for side in pair):
            return f"a window of one element must have no padding; it is {window.padding}"
        if scratch.is_row(shape):
            (left, right), (_, stride) = window.padding[1], window.strides
            unused = shape.image[1] + left + right - window.extent[1] - (shape.output[1] - 1) * stride
            same = same_padding(shape.image[1], window.extent[1], stride)
            if (left, right) != (0, 0) and (stride > 1 or (left, right) != same):
                return (
                    "an image of one row must have no padding, or SAME padding and stride 1; "
                    f"it has padding {left} and {right}, and stride {stride}"
                )
            if unused:
                return f"an image of one row must be used to its end; {unused} elements are not used"
        return super().unsupported_shape(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        weights = layer.array(1)
        assert weights is not None
        shape = self.geometry(layer)
        height, width = shape.window.dilations
        return self.call(
            layer,
            weights,
            library.requantization(layer.array(2), *self.multipliers(layer)),
            scratch.convolution(shape, layer.target),
            {"dilation_height": height, "dilation_width": width},
        )


class DepthwiseConvS8(_Convolution):
    """int8 depthwise convolution by ``arm_depthwise_conv_wrapper_s8``."""

    name = "s8_depthwise_conv2d__cmsis_nn"
    op = DepthwiseConv2D
    function = "arm_depthwise_conv_wrapper_s8"
    template = "external/cmsis_nn/depthwise_conv2d.c.j2"
    fields = declare(
        Field("weights", "[kernel_height][kernel_width][output_channels]"),
        *library.CHANNEL_FIELDS,
        *_SHAPE_FIELDS,
        "multiplier",
        *library.OUTPUT_FIELDS,
        "scratch_size",
    )

    def matrix(self, layer: LayerContext) -> Array:
        weights = layer.array(1)
        assert weights is not None
        return weights.reshape(-1, weights.shape[3]).T

    def unsupported_shape(self, layer: LayerContext) -> str | None:
        shape = self.geometry(layer)
        batch = self.types(layer)[0].shape[0]
        if batch != 1:
            return f"the batch size must be 1; it is {batch}"
        if shape.window.dilations != (1, 1):
            return f"dilation must be (1, 1); it is {shape.window.dilations}"
        return super().unsupported_shape(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        weights = layer.array(1)
        assert weights is not None
        # Vector loads read up to three elements beyond the end of filters and channel constants.
        beyond = 4 if layer.target.has("mve") else 1
        shape = self.geometry(layer)
        return self.call(
            layer,
            np.pad(weights.reshape(-1), (0, beyond - 1)),
            library.requantization(layer.array(2), *self.multipliers(layer), multiple=beyond),
            scratch.depthwise_convolution(shape, layer.target),
            {"multiplier": shape.filters // shape.channels},
        )
