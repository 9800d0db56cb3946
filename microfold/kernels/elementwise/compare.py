"""Comparison and selection in portable C."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.elementwise.broadcast import (
    LOOP_FIELDS,
    BinaryKernel,
    broadcast_strides,
    loop_records,
    merge_axes,
)
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.names import TYPES
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
    """``a < b`` and the like, element by element; the relation is in the code.

    int8 operands are first brought to a common scale: `scales` are two records (minus the zero point,
    multiplier, 0, shift), and the multiplication in two roundings is the reference's. Other types are
    compared as they are.
    """

    template = "elementwise/compare.c.j2"
    fields = declare(
        Field("scales", "of both operands; bias: zero point with the other sign"),
        *LOOP_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        assert isinstance(layer.node.op, Compare)
        if layer.node.op.relation not in _RELATIONS:
            return f"it does not know the relation {layer.node.op.relation}"
        return "it fuses nothing" if layer.node.epilogue else super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, Compare)
        scaled = self.dtype is DType.INT8
        fields: dict[str, Parameter] = {}
        if scaled:
            records: list[tuple[int, ...]] = []
            for value in layer.node.operands[:2]:
                assert value.type.quant is not None
                multiplier = op.multiplier(value.type.quant)
                records.append((-value.type.quant.zero_point, multiplier.mantissa, 0, multiplier.shift))
            fields["scales"] = Constant("scales", np.array(records, np.int32), record="mf_channel")
        spec = (
            ("type", C_TYPES[self.dtype]),
            ("relation", _RELATIONS[op.relation]),
            ("left_shift", LEFT_SHIFT if scaled else 0),
        )
        return self.call(layer, spec, fields)


for _dtype in (DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32, DType.BOOL):
    _name = f"{TYPES[_dtype]}_compare__c"
    _how = "brought to a common scale first" if _dtype is DType.INT8 else "compared as they are"
    register(
        type(
            f"Compare{_dtype.name.title()}",
            (_Compare,),
            {"__doc__": f"{_dtype.value} elements, {_how}.", "name": _name, "op": Compare, "dtype": _dtype},
        )
    )


# What select copies; float16 as the bits that it has.
_MOVED = C_TYPES | {DType.FLOAT16: "uint16_t"}


@register
class SelectPortable(Kernel):
    """Element by element, in four loops; all three operands broadcast.

    The loops are fields: of each its size, and the steps in condition and operands. Elements are copied as
    they are.
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

    def _loops(self, layer: LayerContext) -> list[tuple[int, ...]]:
        out = layer.node.outputs[0].type.shape
        return merge_axes(out, *(broadcast_strides(v.type.shape, out) for v in layer.node.operands[:3]))

    def supports(self, layer: LayerContext) -> str | None:
        if len(self._loops(layer)) > self.LOOPS:
            return "its operands broadcast along too many axes in turn"
        if layer.node.outputs[0].type.dtype not in _MOVED:
            return f"it does not know {layer.node.outputs[0].type.dtype.value}"
        return "it fuses nothing" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1, 2)

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, element=layer.node.outputs[0].type.size)

    def lower(self, layer: LayerContext) -> KernelCall:
        loops = loop_records(self._loops(layer), self.LOOPS)
        parameters: dict[str, Parameter] = {}
        for index, (size, *steps) in enumerate(loops.tolist()):
            parameters[f"size{index}"] = size
            for operand, step in zip(("condition", "first", "second"), steps, strict=True):
                parameters[f"{operand}{index}"] = step
        spec = (("type", _MOVED[layer.node.outputs[0].type.dtype]),)
        return KernelCall(CFunction("elementwise/select.c.j2", self.name, spec, self.fields), parameters)
