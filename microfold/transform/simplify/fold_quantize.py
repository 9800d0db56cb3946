"""Merges chains of elementwise operators from one quantised value to another into one operator.

    %a: float32[8] = dequantize(%x)
    %y: int8[8] q(0.1, 3) = quantize(%a)           ->   nothing: %x is int8[8] q(0.1, 3)

    %a: float32[8] = dequantize(%x)
    %y: int8[8] q(0.2, 5) = quantize(%a)           ->   %y: int8[8] q(0.2, 5) = requantize(%x)

    %a: int8[8] q(0.05, -1) = add(%x, %three)
    %b: int8[8] q(0.05, -1) = clip(%a) {minimum=0.0, maximum=6.0}
    %y: int8[8] q(0.2, 5) = mul(%x, %b)            ->   %y: int8[8] q(0.2, 5) = lookup(%x) {table=(...)}

    %y: int8[8] q(0.1, 3) = maximum(%x, %zero)     ->   %y: int8[8] q(0.1, 3) = clip(%x) {minimum=0.0, ...}

An 8-bit value has only 256 numbers. The pass evaluates the references of all operators of a chain for each of
them. According to the results, it replaces the chain by the first of these that fits:

1. nothing, if the results are the numbers themselves;
2. a clip, if an epilogue can take it;
3. a `requantize`, which computes with integers;
4. a `lookup` with a table of the results, if that saves a kernel.

A 16-bit value has 65536 numbers: few enough to prove the first three, too many for a table. (The interpolated
int16 tables of the references cannot be merged.) The bits stay the same in every case.

Constants of one element may be operands. A value with other readers starts the chain, because it is computed
anyway. An exception is `dequantize` at the start: the replacement reads its operand, whatever else reads it.
"""

from __future__ import annotations

import math

import numpy as np

from microfold.analysis.elementwise_region import ElementwiseRegion, every_number, find_regions
from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.match import Dataflow
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.rewrite_patterns import SiteFlow
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.lookup import Lookup
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.placement.fuse_ops import takes_clip

_BYTES = (DType.INT8, DType.UINT8)
_RESULTS = (*_BYTES, DType.INT16)
_EVERYTHING = Clip(-math.inf, math.inf)
# If the source has 16 bits, only chains that end in these operators are evaluated for all numbers.
_ENDS_OF_16_BITS = (Maximum, Minimum, Quantize, Requantize)


@function_pass(opt_level=2)
def fold_quantize(graph: Graph, context: PassContext) -> Graph:
    """Replace chains from one quantised value to another by the shortest operator with the same bits."""

    def fold(site: RewriteSite[None]) -> Replacement:
        node = site.node
        if len(node.outputs) != 1 or node.output.type.dtype not in _RESULTS:
            return None
        flow = SiteFlow(site)
        # An epilogue stays after the replaced operators.
        regions = find_regions(Node(node.op, flow.root.inputs, node.outputs), flow)
        if isinstance(regions, str):
            if isinstance(node.op, Quantize | Requantize):
                context.declined(node, regions)
            return None
        narrow = [region for region in regions if region.source.type.dtype in _BYTES]
        wide = [region for region in regions if region.source.type.dtype not in _BYTES]
        answers = (_replace(site, region, flow, context) for region in (*wide[-1:], *narrow[-1:], *wide[:1]))
        return next((answer for answer in answers if answer is not None), None)

    return forward_rewrite(graph, fold)


def _replace(
    site: RewriteSite[None], region: ElementwiseRegion, flow: Dataflow, context: PassContext
) -> Replacement:
    """Return the replacement of a region, or None if it is not shorter."""
    node, source, out = site.node, region.source, site.node.output.type
    kernels = sum(not _is_free(inner, flow) for inner in region.nodes)
    if not _is_worth_evaluating(region, kernels):
        return None
    results = region.evaluate(flow)
    words = " and ".join(inner.op.name for inner in region.nodes)
    if source.type == out:
        clip = _as_clip(results, source.type)
        if clip == _EVERYTHING and not node.epilogue:
            context.fired(node, f"{words} return every {out.dtype.value}")
            return source
        reads = sum(inner.operands.count(source) for inner in region.nodes)
        if clip is not None and _takes_clip(source, reads, flow):
            context.fired(node, f"{words} have the bits of one clip")
            return site.emit(clip, source, epilogue=site.epilogue)
    if kernels < 2:
        return None
    if _has_results(Requantize(out.element), source.type, results):
        context.fired(node, f"{words} have the bits of one requantize")
        return site.emit(Requantize(out.element), source, epilogue=site.epilogue)
    if source.type.dtype not in _BYTES:
        context.declined(node, f"{words} are no requantize; a table would have {results.size} entries")
        return None
    context.fired(node, f"{words} become one table of {results.size} results")
    lookup = Lookup(tuple(int(n) for n in results), out.element)
    return site.emit(lookup, source, epilogue=site.epilogue)


def _is_free(node: Node, flow: Dataflow) -> bool:
    """Return whether a node is a clip that runs in the epilogue of its operand's producer."""
    return isinstance(node.op, Clip) and _takes_clip(node.operands[0], 1, flow)


def _takes_clip(value: Value, readers: int, flow: Dataflow) -> bool:
    """Return whether a value's producer takes a clip into its epilogue, if it has so few readers."""
    producer = flow.producer(value)
    return producer is not None and flow.readers(value) <= readers and takes_clip(producer)


def _is_worth_evaluating(region: ElementwiseRegion, kernels: int) -> bool:
    """Return whether a shorter replacement is possible."""
    last = region.nodes[-1]
    if region.source.type.dtype not in _BYTES and not isinstance(last.op, _ENDS_OF_16_BITS):
        return False
    if kernels >= 2:
        return True
    return region.source.type == last.outputs[0].type and any(
        not isinstance(node.op, Clip) for node in region.nodes
    )


def _as_clip(results: Array, type: TensorType) -> Clip | None:
    """Return the clip that maps all numbers of a type to these results, or None if it does not exist."""
    numbers, (lowest, highest) = every_number(type), type.dtype.range
    low, high = int(results[0]), int(results[-1])
    if low > high or not np.array_equal(results, np.clip(numbers, low, high)):
        return None
    if (low, high) == (lowest, highest):
        return _EVERYTHING
    if type.quant is None:
        return None
    minimum, maximum = (type.quant.scale * (bound - type.quant.zero_point) for bound in (low, high))
    clip = Clip(-math.inf if low == lowest else minimum, math.inf if high == highest else maximum)
    return clip if clip.bounds(type.element) == (low, high) else None


def _has_results(op: Op, source: TensorType, results: Array) -> bool:
    """Return whether the operator accepts the type and has these results for all its numbers."""
    numbers = every_number(source)
    try:
        (tensor,) = op.evaluate([Tensor(source.with_shape(numbers.shape), numbers)])
    except TypeRuleError:
        return False
    return bool(np.array_equal(tensor.data, results))
