"""Folds quantised products, sums and differences with constants into adjacent convolutions.

    %a: int8[1,8,8,4] q(0.1, 0) = conv2d(%x, %w, %b) {...}
    %m: int8[1,8,8,4] q(0.05, 0) = mul(%a, %s)
    %y: int8[1,8,8,4] q(0.06, 3) = add(%m, %t)
        ->
    %y: int8[1,8,8,4] q(0.06, 3) = conv2d(%x, %w, %bt) {...}      // %w with other scales

After weights, a factor per channel becomes another scale of each filter: a negative factor also negates the
filter, and 0 leaves only a bias. A summand becomes part of the bias. Only the multipliers and biases of the
kernel change. Before weights, a single factor for all channels has the same effect. Different factors are
multiplied into the weights, which are rounded again, if that moves the outputs only slightly. A summand in
front of a window with padding cannot be folded.

Clips, maximum pools and pads in between are converted to the new scale if the result is equivalent.

Exact numerics admit a fold only if the bits are proved to be the same: outputs are compared at every
breakpoint of both monotone step functions (`microfold.arithmetic.step_function`), inputs one by one. With
relaxed numerics, a result is rounded once instead of twice, and is no longer clamped to the range of the
intermediate value. Each fold is recorded in the build report, which also states the largest difference of the
outputs.

`fold_scale_axis` folds the scales of floating-point graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from microfold.analysis.product_sum import PRODUCT_SUMS
from microfold.analysis.relaxation import Relaxation
from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe, make_node
from microfold.ir.op import Op
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ir.types import TensorType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.passes.context import PassContext, recording_once
from microfold.passes.decorators import function_pass
from microfold.transform.scales.quantized.affine import CARRIERS, QUANTIZED, Affine, carried, read_affine
from microfold.transform.scales.quantized.product_sums import (
    ChangedWeights,
    read_weights,
    scale_inputs,
    scale_outputs,
)
from microfold.transform.scales.quantized.proof import why_not_same_inputs, why_not_same_outputs


@function_pass(opt_level=3)
def fold_quantized_scale_axis(graph: Graph, context: PassContext) -> Graph:
    """Fold quantised scales and shifts into multipliers and biases."""
    folder = _Folder(recording_once(context))
    # A node that has been folded into the weights after it may have hidden another one.
    while True:
        folded = forward_rewrite(graph, folder.visit)
        if folded is graph:
            return graph
        graph = folded


class _Folder:
    def __init__(self, context: PassContext):
        self.context = context

    def visit(self, site: RewriteSite[None]) -> tuple[Value, ...] | None:
        if isinstance(site.node.op, PRODUCT_SUMS):
            return self._forward(site)
        node = _rewired(site)
        affine = read_affine(node, site.builder.constants)
        if affine is None:
            return None
        if isinstance(affine, str):
            self.context.declined(node, affine)
            return None
        answer = self._backward(site, node, affine)
        if isinstance(answer, str):
            self.context.declined(node, answer)
            return None
        return answer

    def _backward(self, site: RewriteSite[None], node: Node, affine: Affine) -> tuple[Value, ...] | str:
        """Fold an affine node into the product sum that computes its operand."""
        chain = _upwards(site, node.inputs[affine.operand], lambda found: isinstance(found.op, PRODUCT_SUMS))
        if isinstance(chain, str):
            return chain
        product, *between = chain
        weights = read_weights(product, site.builder.constants)
        if isinstance(weights, str):
            return f"{describe(product)}: {weights}"
        ops = _carried(between, affine, product.output.type, node.output.type)
        if isinstance(ops, str):
            return ops
        result = scale_outputs(product, weights, affine, node.output.type.element)
        if isinstance(result, str):
            return f"{describe(product)}: {result}"
        x = product.inputs[0]
        assert x is not None
        assert isinstance(product.op, PRODUCT_SUMS)
        op = replace(product.op, out=node.output.type.element)
        draft = self._draft(site, product, x, op, result)
        if isinstance(draft, str):
            return f"{describe(product)}: {draft}"
        nodes = [draft]
        for step, old in zip(ops, between, strict=True):
            nodes.append(make_node(step, [nodes[-1].output], [old.output.name]))
        reason: str | None = "operators in between are compared only if all of them are clips"
        if all(isinstance(step, Clip) for step in ops):
            before = [product, *between, node]
            reason = why_not_same_outputs(before, nodes, site.builder.constants, result)
        change = f"its {affine.describe()} goes into {describe(product)}"
        return self._decide(site, node, change, product.output, nodes, reason)

    def _forward(self, site: RewriteSite[None]) -> tuple[Value, ...] | None:
        """Fold the affine node that computes a product sum's input into the product sum."""
        product = _rewired(site)
        if product.inputs[0] is None or product.inputs[0].type.dtype not in QUANTIZED:
            return None
        constants = site.builder.constants
        chain = _upwards(site, product.inputs[0], lambda found: read_affine(found, constants) is not None)
        if isinstance(chain, str):
            return None
        node, *between = chain
        affine = read_affine(node, constants)
        if affine is None or isinstance(affine, str):
            return None
        answer = self._fold_forward(site, product, node, between, affine)
        if isinstance(answer, str):
            self.context.declined(node, answer)
            return None
        return answer

    def _fold_forward(
        self, site: RewriteSite[None], product: Node, node: Node, between: Sequence[Node], affine: Affine
    ) -> tuple[Value, ...] | str:
        x = node.inputs[affine.operand]
        assert x is not None
        weights = read_weights(product, site.builder.constants)
        if isinstance(weights, str):
            return f"{describe(product)}: {weights}"
        if product.inputs[0] is None or product.inputs[0].type.shape[-1] != affine.scale.size:
            return f"{describe(product)}: it has other channels"
        backwards = affine.inverse()
        if between and backwards is None:
            return f"{describe(between[0])}: a scale of 0 has no inverse"
        ops = _carried(between, backwards, node.output.type, x.type) if backwards is not None else []
        if isinstance(ops, str):
            return ops
        result = scale_inputs(product, weights, affine, x.type)
        if isinstance(result, str):
            return f"{describe(product)}: {result}"
        nodes: list[Node] = []
        value = x
        for op, old in zip(ops, between, strict=True):
            nodes.append(make_node(op, [value], [old.output.name]))
            value = nodes[-1].output
        draft = self._draft(site, product, value, product.op, result)
        if isinstance(draft, str):
            return f"{describe(product)}: {draft}"
        reason: str | None = "only a product directly in front of it is compared"
        if not between and not affine.shift.any() and result.error == 0:
            sign = np.sign(affine.scale).astype(np.int64)
            constants = site.builder.constants
            reason = why_not_same_inputs(node, affine.operand, constants, sign)
            reason = reason or why_not_same_outputs([product], [draft], constants, result)
        change = f"its {affine.describe()} goes into {describe(product)}"
        if result.error:
            change += f", whose weights are rounded again: about {result.error:.2f} steps of its output"
        return self._decide(site, node, change, node.output, [*nodes, draft], reason)

    def _draft(
        self, site: RewriteSite[None], product: Node, x: Value, op: Op, result: ChangedWeights
    ) -> Node | str:
        """Return the product sum with its new weights, or why it cannot exist."""
        builder = site.builder
        filters, *rest = product.inputs[1:]
        assert filters is not None
        inputs: list[Value | None] = [x, builder.constant(result.weights, result.weights_type, filters.name)]
        if result.bias is not None:
            bias = rest[0] if rest else None
            name = bias.name if bias is not None else f"{product.output.name}_bias"
            inputs.append(builder.constant(result.bias, result.bias_type, name))
        try:
            return make_node(op, inputs, [product.output.name])
        except TypeRuleError as error:
            return str(error)

    def _decide(
        self,
        site: RewriteSite[None],
        node: Node,
        change: str,
        skipped: Value,
        nodes: Sequence[Node],
        reason: str | None,
    ) -> tuple[Value, ...] | str:
        """Add the new nodes if the numerics admit them, and record the decision.

        Args:
            node: node that is removed.
            skipped: value that is no longer computed.
            reason: why the bits may differ; None: they are proved to be the same.
        """
        if reason is None:
            self.context.fired(node, f"{change}: the same bits for every sum")
        elif self.context.numerics == "exact":
            return f"not the same bits: {reason}"
        else:
            change = f"{change}; %{skipped.name} is neither rounded nor clamped in between"
            self.context.fired(node, change, Relaxation(describe(node), change))
        for made in nodes[:-1]:
            site.builder.add(made)
        last = nodes[-1]
        return site.emit(last.op, *last.inputs, epilogue=site.epilogue)


def _rewired(site: RewriteSite[None]) -> Node:
    """Return the node with the operands of the new graph."""
    inputs = tuple(site.value(index) for index in range(len(site.node.inputs)))
    return Node(site.node.op, inputs, site.node.outputs, site.node.epilogue)


def _upwards(
    site: RewriteSite[None], value: Value | None, is_end: Callable[[Node], bool]
) -> list[Node] | str:
    """Return the nodes from the nearest end down to the producer of `value`, if none has other readers."""
    chain: list[Node] = []
    while value is not None:
        node = site.builder.producer(value)
        if node is None:
            return f"no node computes %{value.name}"
        # Nodes that a rewrite has made for one reader have no use count.
        if site.uses[value] > 1:
            return f"%{value.name} has other readers"
        if node.epilogue or len(node.outputs) != 1:
            return f"{describe(node)} has an epilogue or several results"
        chain.insert(0, node)
        if is_end(node):
            return chain
        if not isinstance(node.op, CARRIERS):
            return f"no scale passes {describe(node)}"
        value = node.inputs[0]
    return "an operand is absent"


def _carried(between: Sequence[Node], affine: Affine, old: TensorType, new: TensorType) -> list[Op] | str:
    """Return the operators in between, moved to the other side of ``affine``."""
    ops: list[Op] = []
    for node in between:
        op = carried(node.op, affine, old, new)
        if isinstance(op, str):
            return f"{describe(node)}: {op}"
        ops.append(op)
    return ops
