"""Proofs that a product sum with an absorbed affine function has the same bits as before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from microfold.analysis.interval import INT32, Range, fits, full_range, multiply
from microfold.analysis.product_sum import PRODUCT_SUMS, ProductSum, product_sum
from microfold.arithmetic.step_function import Function, first_difference
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops import accumulate
from microfold.transform.scales.quantized.product_sums import ChangedWeights


def why_not_same_outputs(
    before: Sequence[Node], after: Sequence[Node], constants: Mapping[Value, Array], result: ChangedWeights
) -> str | None:
    """Return why two product sums, with the nodes after them, are not proved to have the same bits.

    Args:
        before, after: the product sum, then elementwise nodes, each of which reads the one before.
        constants: constants of both.
        result: changes of the weights.
    """
    old, new = (_sums(nodes[0], constants) for nodes in (before, after))
    x = before[0].inputs[0]
    assert x is not None
    if old is None or new is None or before[0].output.type.dtype is not DType.INT8:
        return "only int8 outputs are compared for every sum"
    sums = old.accumulator(full_range(x.type))
    ends = [result.factor * bound + result.offset for bound in (sums.low, sums.high)]
    reach = Range(sums.low, sums.high), Range(np.minimum(*ends), np.maximum(*ends))
    for values, multipliers in zip(reach, (old.multipliers, new.multipliers), strict=True):
        known = multiply(values, *multipliers)[1] & fits(values, INT32)
        if not bool(known.all()):
            return "sums may exceed 32 bits"

    def moved(sums: Array) -> Array:
        return result.factor * sums + result.offset

    first, second = (_function(nodes, s, constants) for nodes, s in ((before, old), (after, new)))
    stairs = _stairs(before[0], old), _stairs(after[0], new)
    found = first_difference(
        first,
        lambda sums: second(moved(sums)),
        (stairs[0], lambda sums: result.factor * stairs[1](moved(sums))),
        sums.low,
        sums.high,
    )
    if found is None:
        return None
    channel, value = found
    at = np.full((1, sums.low.size), value)
    values = [int(f[0, channel]) for f in (first(at), second(moved(at)))]
    return f"a sum of {value} in channel {channel} returns {values[0]}, and would return {values[1]}"


def why_not_same_inputs(
    affine: Node, operand: int, constants: Mapping[Value, Array], sign: Array
) -> str | None:
    """Return why ``affine(x)`` is not proved to be ``sign * x`` for each x, both without zero points.

    Args:
        operand: index of x.
        sign: int64 [channels].
    """
    x, out = affine.inputs[operand], affine.output.type
    assert x is not None and x.type.quant is not None and out.quant is not None
    if x.type.dtype is not DType.INT8:
        return "only int8 inputs are compared one by one"
    values = np.arange(-128, 128)
    data = np.broadcast_to(values[:, np.newaxis], (256, sign.size)).astype(np.int8)
    given = _apply(affine, x, Tensor(x.type.with_shape(data.shape), data), constants)
    wanted = sign * (values[:, np.newaxis] - x.type.quant.zero_point)
    different = np.argwhere(given.data.astype(np.int64) - out.quant.zero_point != wanted)
    if not different.size:
        return None
    at, channel = different[0].tolist()
    return f"%{x.name} = {values[at]} returns {given.data[at, channel]} in channel {channel}"


def _sums(node: Node, constants: Mapping[Value, Array]) -> ProductSum | None:
    return product_sum(node, Graph("", (), (), (node,), constants))


def _stairs(node: Node, sums: ProductSum) -> Function:
    """Return the function from sums to the product sum's own output."""
    op = node.op
    assert isinstance(op, PRODUCT_SUMS)
    return lambda values: accumulate.requantize(values, *sums.multipliers, op.out, wide=sums.wide).astype(
        np.int64
    )


def _function(nodes: Sequence[Node], sums: ProductSum, constants: Mapping[Value, Array]) -> Function:
    """Return the function from sums to the last node's output."""
    stairs = _stairs(nodes[0], sums)

    def run(values: Array) -> Array:
        value = nodes[0].output
        tensor = Tensor(value.type.with_shape(values.shape), stairs(values).astype(value.type.dtype.numpy))
        for node in nodes[1:]:
            tensor = _apply(node, value, tensor, constants)
            value = node.output
        return tensor.data.astype(np.int64)

    return run


def _apply(node: Node, value: Value, x: Tensor, constants: Mapping[Value, Array]) -> Tensor:
    """Evaluate an elementwise node on another shape: [points, channels]."""
    operands: list[Tensor] = []
    for given in node.inputs:
        assert given is not None
        if given is value:
            operands.append(x)
        else:
            array = constants[given].reshape(-1)
            operands.append(Tensor(TensorType(given.type.dtype, array.shape, given.type.quant), array))
    return node.op.evaluate(operands)[0]
