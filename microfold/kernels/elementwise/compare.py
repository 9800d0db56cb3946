"""Comparison and selection in portable C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from microfold.ir.node import Node
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.elementwise.broadcast import (
    DEEP_OUTER_LOOPS,
    LOOP_FIELDS,
    BinaryKernel,
    broadcast_strides,
    loop_records,
    merge_axes,
)
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, define, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.names import activation_type
from microfold.ops.elementwise.compare import LEFT_SHIFT, Compare
from microfold.ops.elementwise.select import Select

_RELATIONS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}


class _Compare(BinaryKernel):
    """``a < b`` and other relations, element by element, without scaling; the code contains the relation."""

    template = "elementwise/compare.c.j2"
    fields = declare(*LOOP_FIELDS)

    def supports(self, layer: LayerContext) -> str | None:
        assert isinstance(layer.node.op, Compare)
        if layer.node.op.relation not in _RELATIONS:
            return f"it does not support the relation {layer.node.op.relation}"
        return "it does not support an epilogue" if layer.node.epilogue else super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        return self.compare(layer, _RELATIONS[_operator(layer).relation], "as they are", {})

    def compare(
        self, layer: LayerContext, relation: str, form: str, fields: Mapping[str, Parameter]
    ) -> KernelCall:
        spec = (
            ("type", C_TYPES[self.dtype]),
            ("relation", relation),
            ("form", form),
            ("left_shift", LEFT_SHIFT if form == "scaled" else 0),
        )
        return self.call(layer, spec, fields)


def _operator(layer: LayerContext) -> Compare:
    assert isinstance(layer.node.op, Compare)
    return layer.node.op


def _scaled(layer: LayerContext) -> tuple[Array, Array]:
    """Return the reference's scaled value of each int8 number from -128 on, for both operands."""
    every = np.arange(-128, 128).astype(np.int8)
    first, second = (
        _operator(layer).scaled(Tensor(TensorType(DType.INT8, every.shape, value.type.quant), every))
        for value in layer.node.operands[:2]
    )
    return first, second


@register
class CompareInt8(_Compare):
    """Comparison of int8 elements that are first brought to a common scale.

    The constant `scales` has two records (negated zero point, multiplier, 0, shift). The multiplication with
    two roundings is the reference's.
    """

    name = "s8_compare__c"
    op = Compare
    dtype = DType.INT8
    fields = declare(Field("scales", "scales of both operands; bias: negated zero point"), *LOOP_FIELDS)

    def lower(self, layer: LayerContext) -> KernelCall:
        op, records = _operator(layer), list[tuple[int, ...]]()
        for value in layer.node.operands[:2]:
            assert value.type.quant is not None
            multiplier = op.multiplier(value.type.quant)
            records.append((-value.type.quant.zero_point, multiplier.mantissa, 0, multiplier.shift))
        scales = Constant("scales", np.array(records, np.int32), record="mf_channel")
        return self.compare(layer, _RELATIONS[op.relation], "scaled", {"scales": scales})


@register
class CompareInt8Alike(_Compare):
    """Comparison of int8 elements with equal quantisation, without scaling.

    This is exact if the scaling to the common scale is strictly increasing.
    """

    name = "s8_compare__c_alike"
    op = Compare
    dtype = DType.INT8

    def supports(self, layer: LayerContext) -> str | None:
        if reason := super().supports(layer):
            return reason
        first, second = (value.type.quant for value in layer.node.operands[:2])
        if first != second:
            return f"its operands must have equal quantisation; got {first} and {second}"
        return None if _increases(_scaled(layer)[0]) else "different numbers are equal on the common scale"


@register
class CompareInt8Table(_Compare):
    """Comparison of int8 elements of different scales: the second one's table entry is a limit.

    The constant `limits` has 256 int16. For each second number it contains the smallest first number that is
    at least as large on the common scale, or larger, as the relation requires; 128 if none is. For equality,
    it contains the first number that is equal, or `NO_NUMBER`.
    """

    name = "s8_compare__c_limits"
    op = Compare
    dtype = DType.INT8
    NO_NUMBER: ClassVar[int] = 256
    fields = declare(
        Field("limits", "limit of the first element, by the second one, from -128 on"), *LOOP_FIELDS
    )

    def supports(self, layer: LayerContext) -> str | None:
        if reason := super().supports(layer):
            return reason
        if _operator(layer).relation in ("equal", "not_equal") and not _increases(_scaled(layer)[0]):
            return "different numbers of the first operand are equal on the common scale"
        return None

    def lower(self, layer: LayerContext) -> KernelCall:
        relation = _operator(layer).relation
        first, second = _scaled(layer)
        least = np.searchsorted(first, second, "right" if relation in ("less_equal", "greater") else "left")
        limits = (least - 128).astype(np.int16)
        if relation in ("equal", "not_equal"):
            found = first[np.minimum(least, 255)] == second
            limits = np.where(found, limits, self.NO_NUMBER).astype(np.int16)
            in_c = _RELATIONS[relation]
        else:
            in_c = "<" if relation in ("less", "less_equal") else ">="
        return self.compare(layer, in_c, "limits", {"limits": Constant("limits", limits)})


def _increases(numbers: Array) -> bool:
    return bool((np.diff(numbers) > 0).all())


for _name in ("s16_compare__c", "s32_compare__c", "s64_compare__c", "f32_compare__c", "bool_compare__c"):
    _dtype = activation_type(_name)
    define(_Compare, _name, Compare, f"Comparison of {_dtype.value} elements without scaling.", dtype=_dtype)


# C types of the elements that a selection copies; float16 is copied as its bits.
_MOVED = C_TYPES | {DType.FLOAT16: "uint16_t"}


def select_loops(node: Node) -> list[tuple[int, ...]]:
    """Return (size, steps in condition and operands) of the shortest loop nest, outermost loop first."""
    out = node.output.type.shape
    return merge_axes(out, *(broadcast_strides(v.type.shape, out) for v in node.operands[:3]))


def _select_fault(layer: LayerContext, loops: int) -> str | None:
    """Return the reason if a selection with at most this many loops cannot compute a layer."""
    if len(select_loops(layer.node)) > loops:
        return "its operands broadcast along too many alternating axes"
    if layer.node.output.type.dtype not in _MOVED:
        return f"it does not support {layer.node.output.type.dtype.value}"
    return "it does not support an epilogue" if layer.node.epilogue else None


@register
class SelectPortable(Kernel):
    """Selection element by element, in four loops; all three operands may broadcast.

    Each loop has four fields: its size, and the steps in condition and operands. Elements are copied
    unchanged.
    """

    name = "select__c"
    op = Select
    LOOPS = 4
    fields = tuple(
        field
        for loop in range(LOOPS)
        for field in declare(
            f"size{loop}", Field(f"condition{loop}", "steps"), f"first{loop}", f"second{loop}"
        )
    )

    def supports(self, layer: LayerContext) -> str | None:
        return _select_fault(layer, self.LOOPS)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1, 2)

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, element=layer.node.outputs[0].type.size)

    def lower(self, layer: LayerContext) -> KernelCall:
        loops = loop_records(select_loops(layer.node), self.LOOPS)
        parameters: dict[str, Parameter] = {}
        for index, (size, *steps) in enumerate(loops.tolist()):
            parameters[f"size{index}"] = size
            for operand, step in zip(("condition", "first", "second"), steps, strict=True):
                parameters[f"{operand}{index}"] = step
        spec = (("type", _MOVED[layer.node.outputs[0].type.dtype]),)
        return KernelCall(CFunction("elementwise/select.c.j2", self.name, spec, self.fields), parameters)


@register
class SelectDeep(Kernel):
    """Selection element by element, in six loops, for operands that broadcast along more alternating axes.

    The constant `loops` has a row for each loop: its size, and the steps in condition and operands.
    """

    name = "select__c_deep"
    op = Select
    like = "select__c"
    fields = declare(Field("loops", "six rows: size, step in condition, first and second"))

    def is_for(self, node: Node) -> bool:
        return len(select_loops(node)) > SelectPortable.LOOPS

    def supports(self, layer: LayerContext) -> str | None:
        return _select_fault(layer, DEEP_OUTER_LOOPS + 1)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1, 2)

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, element=layer.node.outputs[0].type.size)

    def lower(self, layer: LayerContext) -> KernelCall:
        loops = loop_records(select_loops(layer.node), DEEP_OUTER_LOOPS + 1)
        spec = (("type", _MOVED[layer.node.outputs[0].type.dtype]),)
        function = CFunction("elementwise/select_deep.c.j2", self.name, spec, self.fields)
        return KernelCall(function, {"loops": Constant("loops", loops)})
