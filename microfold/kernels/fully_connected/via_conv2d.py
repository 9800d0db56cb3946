"""Fully connected layers of several rows by any convolution kernel, with rows as pixels.

Weights are 1x1 filters. Convolution kernels compute several pixels together, so that they read each weight
less often.
"""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ir.node import Value, make_node
from microfold.ir.types import Array
from microfold.kernels.call import KernelCall
from microfold.kernels.conv2d import dsp, mve, packed_two_per_word, s16_dsp, s16_mve
from microfold.kernels.conv2d.shared_conv_kernel import ByConvolution, register_by
from microfold.kernels.fully_connected.portable import fully_connected_types, weights_zero_point
from microfold.kernels.layer import LayerContext
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected


def convolution_layer(layer: LayerContext) -> LayerContext:
    """Return the convolution that computes the rows."""
    op = layer.node.op
    assert isinstance(op, FullyConnected)
    x, weights, out = fully_connected_types(layer)
    image = Value(layer.node.operands[0].name, replace(x, shape=(1, 1, *x.shape)))
    constants: dict[Value, Array] = {}
    for index in range(1, len(layer.node.inputs)):
        value, array = layer.node.inputs[index], layer.array(index)
        if value is None or array is None:
            continue
        if index == 1:
            array = array.reshape(array.shape[0], 1, 1, array.shape[1])
            constants[Value(value.name, replace(weights, shape=array.shape))] = array
        else:
            constants[value] = array
    convolution = Conv2D((1, 1), (1, 1), ((0, 0), (0, 0)), op.out)
    node = make_node(convolution, [image, *constants], [layer.node.output.name], layer.node.epilogue)
    assert node.output.type.size == out.size
    return replace(layer, node=node, constants=constants, ranges=None)


class _FullyConnectedRows(ByConvolution, frozen=True):
    """Base class of kernels that compute rows as pixels, by the function of a convolution kernel."""

    op = FullyConnected

    def convolved(self, layer: LayerContext) -> LayerContext:
        return convolution_layer(layer)

    def supports(self, layer: LayerContext) -> str | None:
        x, weights, _ = fully_connected_types(layer)
        if x.shape[0] < 2:
            return "it requires at least 2 rows; got 1"
        if x.dtype.is_float or layer.array(1) is None or weights.quant is None or x.quant is None:
            return "it requires quantised inputs and constant weights"
        if weights_zero_point(layer):
            return f"its weights must have zero point 0; got {weights_zero_point(layer)}"
        return self.convolution.supports(convolution_layer(layer))

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return self._variant.overlap(convolution_layer(layer), index)

    def lower(self, layer: LayerContext) -> KernelCall:
        return self._variant.lower(convolution_layer(layer))


register_by(
    _FullyConnectedRows,
    "Fully connected layer with rows as pixels",
    {
        "s8_fully_connected__dsp_4x2_rows": dsp.Conv2DDsp,
        "s8_fully_connected__mve_2x4_rows": mve.Conv2DMve,
        "s8_fully_connected__thumb1_4x1_rows": packed_two_per_word.Conv2DThumb1,
        "s8_fully_connected__thumb2_4x1_rows": packed_two_per_word.Conv2DThumb2,
        "s16_fully_connected__dsp_4x2_rows": s16_dsp.Conv2DInt16Dsp,
        "s16_fully_connected__mve_1x4_rows": s16_mve.Conv2DInt16Mve,
    },
)
