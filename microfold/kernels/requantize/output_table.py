"""Steps of an epilogue behind a product sum that one table computes.

A sum is requantised to int8 as its operator says, and the byte is looked up: clips, activations and changes
of scale behind it are one table of 256 results together, made by the reference of each.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.ir.node import Node
from microfold.ir.op import Pattern
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.kernels.call import Constant, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field
from microfold.kernels.layer import LayerContext
from microfold.ops.elementwise.activations.clip import Clip

TABLE_FIELD = Field("output_table", "outputs for sums that are requantised to -128 to 127")
# The part of a kernel's time, see `Kernel.terms`.
TERM = "looked_up"


def is_table(node: Node) -> bool:
    """Whether an epilogue of int8 has more than clips, and all of it is a function of the byte at hand."""
    if all(isinstance(step.op, Clip) for step in node.epilogue):
        return False
    if any(step.operands or step.op.pattern is not Pattern.ELEMENTWISE for step in node.epilogue):
        return False
    running = _bare(node)
    for step in node.epilogue:
        if running.dtype is not DType.INT8:
            return False
        (running,) = step.op.infer_all([running])
    return running.dtype is DType.INT8


def sum_type(node: Node) -> TensorType:
    """What sums are requantised to: the type of the output, but for the element that a table is read at."""
    out = node.outputs[0].type
    return out.with_element(_bare(node).element) if is_table(node) else out


def results(node: Node) -> Array:
    """The table, int8 [256], the entry of the lowest byte first."""
    low, high = DType.INT8.range
    element = _bare(node).element
    data = np.arange(low, high + 1).astype(np.int8)
    running = Tensor(TensorType(element.dtype, data.shape, element.quant), data)
    for step in node.epilogue:
        (running,) = step.op.evaluate([running])
    return running.data


def table_spec(node: Node) -> tuple[tuple[str, SpecValue], ...]:
    """The compile-time choice for templates: outputs are looked up."""
    return (("table", is_table(node)),)


def table_parameters(node: Node) -> Mapping[str, Parameter]:
    """The layer field, if outputs are looked up."""
    return {TABLE_FIELD.name: Constant("table", results(node))} if is_table(node) else {}


def table_terms(layer: LayerContext) -> Terms:
    """Of one call: how many outputs are looked up."""
    return Terms({TERM: layer.node.outputs[0].type.size}) if is_table(layer.node) else Terms()


def _bare(node: Node) -> TensorType:
    """Type of the output before the epilogue."""
    return node.op.infer_all([v.type if v is not None else None for v in node.inputs])[0]
