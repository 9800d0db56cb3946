"""Elementwise operators of 8-bit values, by a table of 256 results that the operator's reference computes."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from microfold.ir.op import Op
from microfold.ir.types import Array, DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms, vector_terms
from microfold.kernels.fields import Fields, declare, describe
from microfold.kernels.kernel import Kernel, define
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.mve import LANES
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.hard_swish import HardSwish
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.lookup import Lookup, table
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.elementwise.unary import Unary


class TableKernel(Kernel):
    """``output[i] = table[input[i]]``: one load per element, in iterations of four unless compiled for size.

    The constant `table` has 256 results, starting with the lowest input. The operator's own reference
    computes them (`ops.elementwise.lookup.table`), and the bounds of the epilogue clamp them. Therefore they
    need no proof.
    """

    fields = declare(
        "table",
        "length",
    )

    def results(self, layer: LayerContext) -> Array:
        """Return the result for each value of the input, the lowest first, before the epilogue."""
        return table(layer.node.op, self.operand(layer).element)

    def operand(self, layer: LayerContext) -> TensorType:
        """Return the type of the input that is not constant."""
        return layer.node.operands[0].type

    def supports(self, layer: LayerContext) -> str | None:
        x = self.operand(layer)
        if x.dtype not in (DType.INT8, DType.UINT8):
            return f"it needs 8-bit values; got {x.dtype.value}"
        return output_range.unsupported_epilogue(layer.node)

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1) + Terms(
            {"small_element" if layer.compiled_for_size else "element": self.operand(layer).size}
        )

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, out = self.operand(layer), layer.node.outputs[0].type
        return 0 if x.dtype.itemsize == out.dtype.itemsize else None

    def table(self, layer: LayerContext) -> Constant:
        """Return the results in the form that the C function reads."""
        results = self.results(layer)
        if layer.node.epilogue:
            results = np.clip(results, *output_range.integer_bounds(layer.node)).astype(results.dtype)
        return Constant("table", results)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, out = self.operand(layer), layer.node.outputs[0].type
        parameters: dict[str, Parameter] = {"table": self.table(layer), "length": x.size}
        spec = (
            ("input_type", f"{x.dtype.value}_t"),
            ("output_type", f"{out.dtype.value}_t"),
            ("lowest", x.dtype.range[0]),
            ("unroll", not layer.compiled_for_size),
        )
        fields = _described(self.fields, x.dtype)
        return KernelCall(CFunction("elementwise/tables/table.c.j2", "lookup__c", spec, fields), parameters)


class TableMve(TableKernel):
    """Table lookup of sixteen results by one gather load, with the same table; results must be bytes.

    The table index of a signed input is the input with its highest bit inverted.
    """

    features = frozenset({"mve"})

    def supports(self, layer: LayerContext) -> str | None:
        out = layer.node.outputs[0].type
        if out.dtype.itemsize != 1:
            return f"it needs results of one byte; got {out.dtype.value}"
        return super().supports(layer)

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1) + vector_terms(1, self.operand(layer).size, LANES)

    def lower(self, layer: LayerContext) -> KernelCall:
        x = self.operand(layer)
        results = self.table(layer)
        parameters: dict[str, Parameter] = {
            "table": replace(results, array=results.array.view(np.uint8)),
            "length": x.size,
        }
        spec = (("signed", x.dtype is DType.INT8), ("tail", x.size % LANES != 0))
        fields = _described(self.fields, x.dtype)
        return KernelCall(
            CFunction("elementwise/tables/table_mve.c.j2", "lookup__mve", spec, fields), parameters
        )


def _described(fields: Fields, dtype: DType) -> Fields:
    """Return the fields, with the range of inputs in the table's comment."""
    low, high = dtype.range
    return describe(fields, table=f"results for {low} to {high}")


def _define(operator: type[Op], portable_name: str, mve_name: str) -> None:
    """Register the kernels of one operator; all operators share their C functions."""
    doc = f"{operator.__name__} of 8-bit values, {{}}, by a table that its reference computes."
    define(TableKernel, portable_name, operator, doc.format("one by one"))
    define(TableMve, mve_name, operator, doc.format("sixteen at a time"))


_define(Abs, "s8_abs__c_table", "s8_abs__mve_table")
_define(HardSwish, "s8_hard_swish__c_table", "s8_hard_swish__mve_table")
_define(LeakyRelu, "s8_leaky_relu__c_table", "s8_leaky_relu__mve_table")
_define(Logistic, "s8_logistic__c_table", "s8_logistic__mve_table")
_define(Lookup, "s8_lookup__c_table", "s8_lookup__mve_table")
_define(Relu, "s8_relu__c_table", "s8_relu__mve_table")
_define(Requantize, "s8_requantize__c_table", "s8_requantize__mve_table")
_define(Rsqrt, "s8_rsqrt__c_table", "s8_rsqrt__mve_table")
_define(Tanh, "s8_tanh__c_table", "s8_tanh__mve_table")
_define(Unary, "s8_unary__c_table", "s8_unary__mve_table")
