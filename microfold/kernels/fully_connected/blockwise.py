"""Hybrid fully connected layers whose weights have a scale for each block of inputs."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.fields import Field, declare
from microfold.kernels.fully_connected.portable import fully_connected_types
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.blockwise_fully_connected import BlockwiseFullyConnected

# Number of units that are computed together.
UNITS = 4


@register
class BlockwiseFullyConnectedPortable(Kernel):
    """Blockwise fully connected layer of 4 units at a time. The integer sum of each block is scaled.

    `weights` is [outputs / 4][inputs][4], and `scales` is [outputs / 4][blocks][4], in reading order and
    padded with zeros after the last unit. Integer sums have 32 bits.
    """

    name = "s16_f32_blockwise_fully_connected__c_4"
    op = BlockwiseFullyConnected
    fields = declare(
        Field("weights", "[outputs / 4][inputs][4]"),
        Field("scales", "[outputs / 4][inputs / length][4]"),
        "biases",
        *MATRIX_FIELDS,
        Field("length", "inputs of a block"),
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        if layer.array(4) is None:
            return "scales must be constant"
        return product_sum.unsupported_constants(layer, DType.INT16, DType.INT8)

    def cost(self, layer: LayerContext) -> float:
        assert isinstance(layer.node.op, BlockwiseFullyConnected)
        x, _, out = fully_connected_types(layer)
        product = 5.4 if layer.target.has("thumb1") else 2.3
        scaling = 8.0 if layer.target.has("fpu") else 250.0
        blocks = x.shape[1] // layer.node.op.length
        return (
            x.shape[0] * -(-out.shape[1] // UNITS) * UNITS * (product * x.shape[1] + scaling * (blocks + 1))
        )

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, BlockwiseFullyConnected)
        x, _, out = fully_connected_types(layer)
        weights, biases, scales = (layer.array(index) for index in (1, 2, 4))
        assert weights is not None
        assert biases is not None
        assert scales is not None
        clamp, limits = output_range.clamping(layer.node)
        unroll = product_sum.unroll_factor(op.length)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", product_sum.interleave_channels(weights, UNITS)),
            "scales": Constant("scales", product_sum.interleave_channels(scales.astype(np.float32), UNITS)),
            "biases": Constant("biases", product_sum.pad_channels(biases, UNITS)),
            **matrix_parameters(x, out),
            "length": op.length,
            **limits,
        }
        spec = (("clamp", clamp), ("unroll", unroll))
        function = CFunction("fully_connected/blockwise.c.j2", self.name, spec, self.fields)
        return KernelCall(function, parameters)
