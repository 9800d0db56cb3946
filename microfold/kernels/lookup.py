"""Elementwise operators of 8-bit values: a table of 256 results, made by the operator's own reference."""

from __future__ import annotations

import numpy as np

from microfold.ir.op import Op
from microfold.ir.types import DType
from microfold.kernels import epilogue
from microfold.kernels.kernel import Call, Constant, Function, Kernel, Parameter, Site, register
from microfold.ops.abs import Abs
from microfold.ops.hard_swish import HardSwish
from microfold.ops.leaky_relu import LeakyRelu
from microfold.ops.logistic import Logistic
from microfold.ops.lookup import Lookup, table
from microfold.ops.relu import Relu
from microfold.ops.requantize import Requantize
from microfold.ops.rsqrt import Rsqrt
from microfold.ops.tanh import Tanh
from microfold.ops.unary import Unary


class _Lookup(Kernel):
    """``output[i] = table[input[i]]``."""

    def supports(self, site: Site) -> str | None:
        x = site.node.operands[0].type
        if x.dtype not in (DType.INT8, DType.UINT8):
            return f"it needs 8-bit values; they are {x.dtype.value}"
        return epilogue.unsupported_epilogue(site.node)

    def cost(self, site: Site) -> float:
        return site.node.outputs[0].type.size * 6.0

    def overlap(self, site: Site, index: int) -> int | None:
        x, out = site.node.operands[0].type, site.node.outputs[0].type
        return 0 if x.dtype.itemsize == out.dtype.itemsize else None

    def lower(self, site: Site) -> Call:
        x, out = site.node.operands[0].type, site.node.outputs[0].type
        results = table(site.node.op, x.element)
        if site.node.epilogue:
            results = np.clip(results, *epilogue.integer_bounds(site.node)).astype(results.dtype)
        parameters: dict[str, Parameter] = {"table": Constant("table", results), "length": x.size}
        spec = (
            ("input_type", f"{x.dtype.value}_t"),
            ("output_type", f"{out.dtype.value}_t"),
            ("lowest", x.dtype.range[0]),
        )
        return Call(Function("lookup/c.c.j2", "lookup__c", spec), parameters)


def _define(operator: type[Op]) -> None:
    """Registers the kernel of one operator; all of them share a C function."""
    register(
        type(
            f"{operator.__name__}Lookup", (_Lookup,), {"name": f"s8_{operator.name}__c_table", "op": operator}
        )
    )


for _operator in (Abs, HardSwish, LeakyRelu, Logistic, Lookup, Relu, Requantize, Rsqrt, Tanh, Unary):
    _define(_operator)
