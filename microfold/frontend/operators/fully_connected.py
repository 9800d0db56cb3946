"""Importer of FULLY_CONNECTED."""

from __future__ import annotations

import tflite

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.hybrid import bias_of, is_hybrid, quantized
from microfold.frontend.importers import imports
from microfold.frontend.window import check_legacy_weights, check_weights, with_bias_type
from microfold.ir.node import Value
from microfold.ir.types import Array, DType
from microfold.ops.fully_connected.blockwise_fully_connected import BlockwiseFullyConnected
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.fully_connected.hybrid_fully_connected import HybridFullyConnected
from microfold.ops.fully_connected.legacy_fully_connected import LegacyFullyConnected
from microfold.ops.movement.reshape import Reshape


@imports("FULLY_CONNECTED", blockwise=(1,))
def fully_connected(context: OperatorContext) -> None:
    options = context.required_options("FullyConnectedOptions")
    x, weights = context.input(0), context.input(1)
    check_weights(x, weights)
    check_legacy_weights(context)
    legacy = context.raw_type(1) is DType.UINT8
    if legacy and context.raw_type(0) is not DType.UINT8:
        raise Unsupported(f"uint8 weights require uint8 activations; they are {x.type}")
    if options.WeightsFormat() != tflite.FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise Unsupported("only the default weights format is supported")
    if weights.type.rank != 2:
        raise Unsupported(f"its weights must have rank 2; they are {weights.type}")
    units, depth = weights.type.shape
    if depth == 0 or x.type.size % depth:
        raise Unsupported(f"the input must divide into rows of {depth} elements; it is {x.type}")
    batch = x.type.size // depth
    if x.type.shape != (batch, depth):
        (x,) = context.emit(Reshape((batch, depth)), x, names=[f"{x.name}_rows"])
    blocks = context.block_scales(1)
    if blocks is not None:
        result = _blockwise(context, x, weights, *blocks)
        if options.FusedActivationFunction() != tflite.ActivationFunctionType.NONE:
            raise Unsupported(
                "its weights are quantised by blocks, and LiteRT then ignores its fused activation",
                "make the activation a separate operator, or quantise the weights per channel",
            )
    elif is_hybrid(x, weights):
        values, steps = quantized(context, x, asymmetric=bool(options.AsymmetricQuantizeInputs()))
        bias = bias_of(context, 2, units)
        (result,) = context.emit(HybridFullyConnected(), values, weights, bias, steps)
    else:
        op = LegacyFullyConnected if legacy else FullyConnected
        bias = with_bias_type(context, context.optional(2), x, units, options)
        (result,) = context.emit(op(context.element()), x, weights, bias)
    if options.KeepNumDims():
        shape = (*context.input(0).type.shape[:-1], units)
        if shape != result.type.shape:
            (result,) = context.emit(Reshape(shape), result)
    context.finish_activated(result, options.FusedActivationFunction())


def _blockwise(context: OperatorContext, x: Value, weights: Value, scales: Array, length: int) -> Value:
    """Emit a layer with block-wise weights. LiteRT always quantises its input rows asymmetrically."""
    if not is_hybrid(x, weights):
        raise Unsupported(f"block-wise weights require float32 activations; they are {x.type}")
    values, steps = quantized(context, x, asymmetric=True)
    bias = bias_of(context, 2, weights.type.shape[0])
    factors = context.add_constant(scales, f"{weights.name}_scales")
    (result,) = context.emit(BlockwiseFullyConnected(length), values, weights, bias, steps, factors)
    return result
