"""Epilogues after a product sum that one table lookup computes.

A sum is requantised to int8 as its operator requires, and the byte is looked up. Clips, activations and
changes of scale after it share one table of 256 results, which their references compute.
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

TABLE_FIELD = Field("output_table", "outputs for requantised sums from -128 to 127")
# Name of the code part for table lookups, see `Kernel.terms`.
TERM = "looked_up"


def is_table(node: Node) -> bool:
    """Return whether an int8 epilogue has more than clips, and depends on the requantised byte alone."""
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
    """Return the type to which sums are requantised: the table's index type, or the type of the output."""
    out = node.outputs[0].type
    return out.with_element(_bare(node).element) if is_table(node) else out


def results(node: Node) -> Array:
    """Return the table, int8 [256], starting with the entry of the lowest byte."""
    low, high = DType.INT8.range
    element = _bare(node).element
    data = np.arange(low, high + 1).astype(np.int8)
    running = Tensor(TensorType(element.dtype, data.shape, element.quant), data)
    for step in node.epilogue:
        (running,) = step.op.evaluate([running])
    return running.data


def table_spec(node: Node) -> tuple[tuple[str, SpecValue], ...]:
    """Return the compile-time choice for templates whether outputs are looked up."""
    return (("table", is_table(node)),)


def table_parameters(node: Node) -> Mapping[str, Parameter]:
    """Return the layer field with the table, if outputs are looked up."""
    return {TABLE_FIELD.name: Constant("table", results(node))} if is_table(node) else {}


def table_terms(layer: LayerContext) -> Terms:
    """Count the outputs of one call that are looked up."""
    return Terms({TERM: layer.node.outputs[0].type.size}) if is_table(layer.node) else Terms()


def _bare(node: Node) -> TensorType:
    """Return the type of the output before the epilogue."""
    return node.op.infer_all([v.type if v is not None else None for v in node.inputs])[0]
