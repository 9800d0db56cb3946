"""Decomposes training operators into the operations that they perform in inference.

    %y: float32[1,8,8,4] = batch_norm(%x, %g, %b, %m, %v) {...}
        ->
    %y_scaled: float32[1,8,8,4] = mul(%x, %y_scale)
    %y: float32[1,8,8,4] = add(%y_scaled, %y_shift)

A batch normalisation becomes a product and a sum. In a trained model its statistics are constant, so that
both have one constant per channel, which `fold_scale_axis` and `fold_shift_axis` fold into weights. A layer
normalisation becomes a mean, a variance and a reciprocal square root. A dropout is removed. No kernel
computes these operators, therefore the pass is mandatory. Relax calls it DecomposeOpsForInference.

TFLite files do not contain these operators: converters write batch and layer normalisations as products and
sums. The pass serves graphs in the text form and other importers.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from microfold.ir.functions import transform_named
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import Array, DType, ElementType, TensorType
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.dropout import Dropout
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.elementwise.sub import Sub
from microfold.ops.movement.reshape import Reshape
from microfold.ops.normalize.batch_norm import BatchNorm
from microfold.ops.normalize.layer_norm import LayerNorm
from microfold.ops.reduce.mean import Mean
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass

_FLOAT = ElementType(DType.FLOAT32)


@module_pass(opt_level=0, mandatory=True)
class SimplifyInference(Struct, frozen=True):
    """Decomposition of batch_norm and layer_norm, and removal of dropout.

    Attributes:
        func_name: name of the only graph (main graph or subgraph) to change; empty: all graphs.

    Raises:
        InputError: no graph has this name.
    """

    func_name: str = ""

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        names = (self.func_name,) if self.func_name else ()
        return transform_named(graph, names, lambda body: _simplify(body, context))


# The pass with default options.
simplify_inference = SimplifyInference()


def _simplify(graph: Graph, context: PassContext) -> Graph:
    def batch_norm(site: RewriteSite[None]) -> Replacement:
        node, op = site.node, site.node.op
        assert isinstance(op, BatchNorm)
        shape = tuple(-1 if axis == op.axis else 1 for axis in range(node.output.type.rank))
        arrays = [site.array(value) for value in node.inputs[1:]]
        present = [array for array in arrays if array is not None]
        steps = _Steps(site)
        if len(present) == len(arrays):
            context.fired(node, "a product and a sum with constants")
            with np.errstate(all="ignore"):
                parts = op.scale_and_shift(*present)
            scale, shift = (
                steps.constant(part.reshape(shape), name)
                for part, name in zip(parts, ("scale", "shift"), strict=True)
            )
        else:
            context.fired(node, "a product and a sum; its statistics are computed")
            extents = tuple(n if axis == op.axis else 1 for axis, n in enumerate(node.output.type.shape))
            gamma, beta, mean, variance = (
                steps.emit(Reshape(extents), name, site.value(index))
                for index, name in enumerate(("gamma", "beta", "mean", "variance"), 1)
            )
            scale = steps.emit(Mul(_FLOAT), "scale", gamma, steps.inverse_root(variance, op.epsilon))
            shift = steps.emit(Sub(_FLOAT), "shift", beta, steps.emit(Mul(_FLOAT), "offset", mean, scale))
        scaled = steps.emit(Mul(_FLOAT), "scaled", site.value(0), scale)
        return site.emit(Add(_FLOAT), scaled, shift, epilogue=site.epilogue)

    def layer_norm(site: RewriteSite[None]) -> Replacement:
        node, op, x = site.node, site.node.op, site.value(0)
        assert isinstance(op, LayerNorm)
        assert x is not None
        context.fired(node, "a mean, a variance, and a product and a sum")
        steps, mean = _Steps(site), Mean(op.axes(x.type), True, _FLOAT)
        centred = steps.emit(Sub(_FLOAT), "centred", x, steps.emit(mean, "mean", x))
        variance = steps.emit(mean, "variance", steps.emit(Mul(_FLOAT), "squares", centred, centred))
        normal = steps.emit(Mul(_FLOAT), "normal", centred, steps.inverse_root(variance, op.epsilon))
        scaled = steps.emit(Mul(_FLOAT), "scaled", normal, site.value(1))
        return site.emit(Add(_FLOAT), scaled, site.value(2), epilogue=site.epilogue)

    def dropout(site: RewriteSite[None]) -> Replacement:
        if site.node.epilogue:
            context.declined(site.node, "it has an epilogue")
            return None
        context.fired(site.node, "it does nothing in inference")
        return site.inputs[0]

    return forward_rewrite(graph, {BatchNorm: batch_norm, LayerNorm: layer_norm, Dropout: dropout})


class _Steps:
    """Emits nodes and constants whose names derive from the result of the replaced node."""

    def __init__(self, site: RewriteSite[None]):
        self.builder = site.builder
        self.name = site.node.output.name

    def emit(self, op: Op, part: str, *inputs: Value | None) -> Value:
        (value,) = self.builder.emit(op, inputs, [f"{self.name}_{part}"])
        return value

    def constant(self, array: Array, part: str) -> Value:
        return self.builder.constant(array, TensorType(DType.FLOAT32, array.shape), f"{self.name}_{part}")

    def inverse_root(self, variance: Value, epsilon: float) -> Value:
        """Emit ``1 / sqrt(variance + epsilon)``."""
        small = self.constant(np.array(epsilon, np.float32), "epsilon")
        return self.emit(Rsqrt(_FLOAT), "inverse", self.emit(Add(_FLOAT), "positive", variance, small))
