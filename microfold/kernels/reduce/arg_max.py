"""Index of the extremum along an axis, in portable C."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.reduce.arg_max import ArgMax, ArgMin


class _ArgExtremum(Kernel):
    """Index of the first largest or smallest element along the axis.

    The kernel has no constants; it compares elements one after the other, without scaling.

    Class attributes:
        relation: C operator between an element and the best one so far, which it replaces if true.
    """

    relation: ClassVar[str]
    fields = declare(
        "outer",
        Field("depth", "elements along the axis"),
        "inner",
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype not in C_TYPES:
            return f"it does not support {x.dtype.value}"
        return "it does not support an epilogue" if layer.node.epilogue else None

    def terms(self, layer: LayerContext) -> Terms:
        x, outputs = layer.node.operands[0].type, layer.node.outputs[0].type.size
        return Terms({"call": 1, "output": outputs, f"{x.dtype.value}_element": x.size})

    def lower(self, layer: LayerContext) -> KernelCall:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        assert isinstance(layer.node.op, ArgMax | ArgMin)
        axis = layer.node.op.axis
        parameters: dict[str, Parameter] = {
            "outer": int(np.prod(x.shape[:axis])),
            "depth": x.shape[axis],
            "inner": int(np.prod(x.shape[axis + 1 :])),
        }
        spec = (
            ("input_type", C_TYPES[x.dtype]),
            ("output_type", C_TYPES[out.dtype]),
            ("relation", self.relation),
        )
        return KernelCall(CFunction("reduce/arg_max.c.j2", self.name, spec, self.fields), parameters)


@register
class ArgMaxPortable(_ArgExtremum):
    """Index of the first largest element."""

    name = "arg_max__c"
    op = ArgMax
    relation = ">"


@register
class ArgMinPortable(_ArgExtremum):
    """Index of the first smallest element."""

    name = "arg_min__c"
    op = ArgMin
    relation = "<"
