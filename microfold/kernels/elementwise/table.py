"""Elementwise operators of 8-bit values: a table of 256 results, made by the operator's own reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microfold.ir.op import Op
from microfold.ir.types import Array, DType, TensorType
from microfold.kernels.kernel import (
    CFunction,
    Constant,
    Kernel,
    KernelCall,
    LayerContext,
    Parameter,
    register,
)
from microfold.kernels.packing.mve import LANES
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.hard_swish import HardSwish
from microfold.ops.elementwise.leaky_relu import LeakyRelu
from microfold.ops.elementwise.logistic import Logistic
from microfold.ops.elementwise.lookup import Lookup, table
from microfold.ops.elementwise.relu import Relu
from microfold.ops.elementwise.requantize import Requantize
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.elementwise.tanh import Tanh
from microfold.ops.elementwise.unary import Unary


class TableKernel(Kernel):
    """``output[i] = table[input[i]]``."""

    def results(self, site: LayerContext) -> Array:
        """The result for each value of the input, the lowest first; before any epilogue."""
        return table(site.node.op, self.operand(site).element)

    def operand(self, site: LayerContext) -> TensorType:
        """The input that is not constant."""
        return site.node.operands[0].type

    def supports(self, site: LayerContext) -> str | None:
        x = self.operand(site)
        if x.dtype not in (DType.INT8, DType.UINT8):
            return f"it needs 8-bit values; they are {x.dtype.value}"
        return output_range.unsupported_epilogue(site.node)

    def cost(self, site: LayerContext) -> float:
        size = self.operand(site).size
        each = 5.0 if site.options.optimize == "size" else 4.0
        return 15 + size * (each + 0.75 * site.target.has("thumb1"))

    def overlap(self, site: LayerContext, index: int) -> int | None:
        x, out = self.operand(site), site.node.outputs[0].type
        return 0 if x.dtype.itemsize == out.dtype.itemsize else None

    def table(self, site: LayerContext) -> Constant:
        """The results as the C function reads them."""
        results = self.results(site)
        if site.node.epilogue:
            results = np.clip(results, *output_range.integer_bounds(site.node)).astype(results.dtype)
        return Constant("table", results)

    def lower(self, site: LayerContext) -> KernelCall:
        x, out = self.operand(site), site.node.outputs[0].type
        parameters: dict[str, Parameter] = {"table": self.table(site), "length": x.size}
        spec = (
            ("input_type", f"{x.dtype.value}_t"),
            ("output_type", f"{out.dtype.value}_t"),
            ("lowest", x.dtype.range[0]),
            ("unroll", site.options.optimize != "size"),
        )
        return KernelCall(CFunction("elementwise/table.c.j2", "lookup__c", spec), parameters)


class TableMve(TableKernel):
    """Sixteen entries by one load that gathers them."""

    features = frozenset({"mve"})

    def supports(self, site: LayerContext) -> str | None:
        out = site.node.outputs[0].type
        if out.dtype.itemsize != 1:
            return f"it gathers bytes; the results are {out.dtype.value}"
        return super().supports(site)

    def cost(self, site: LayerContext) -> float:
        return 15 + 5.0 * -(-self.operand(site).size // LANES)

    def lower(self, site: LayerContext) -> KernelCall:
        x = self.operand(site)
        results = self.table(site)
        parameters: dict[str, Parameter] = {
            "table": replace(results, array=results.array.view(np.uint8)),
            "length": x.size,
        }
        spec = (("signed", x.dtype is DType.INT8), ("tail", x.size % LANES != 0))
        return KernelCall(CFunction("elementwise/table_mve.c.j2", "lookup__mve", spec), parameters)


def _define(operator: type[Op]) -> None:
    """Registers the kernels of one operator; all operators share their C functions."""
    stem, name = operator.__name__, f"s8_{operator.name}"
    register(type(f"{stem}Table", (TableKernel,), {"name": f"{name}__c_table", "op": operator}))
    register(type(f"{stem}TableMve", (TableMve,), {"name": f"{name}__mve_table", "op": operator}))


for _operator in (Abs, HardSwish, LeakyRelu, Logistic, Lookup, Relu, Requantize, Rsqrt, Tanh, Unary):
    _define(_operator)
