"""Calls of C functions that the user provides."""

from __future__ import annotations

from microfold.kernels.call import CFunction, KernelCall, Library
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.external.custom_call import CustomCall


@register
class CustomCallKernel(Kernel):
    """Call of the firmware's function with pointers to inputs, then to outputs, which overlap no input."""

    name = "custom_call__c"
    op = CustomCall

    def supports(self, layer: LayerContext) -> str | None:
        for value in (*layer.node.operands, *layer.node.outputs):
            if value.type.dtype not in C_TYPES:
                return f"{value.type.dtype.value} has no C type"
        return "it does not support an epilogue" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return tuple(range(len(layer.node.inputs)))

    def cost(self, layer: LayerContext) -> float:
        return 0.0

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, CustomCall)
        spec = (
            ("function", op.function),
            ("inputs", ",".join(C_TYPES[value.type.dtype] for value in layer.node.operands)),
            ("outputs", ",".join(C_TYPES[value.type.dtype] for value in layer.node.outputs)),
        )
        library = Library(f"{op.function}(), declared in {op.header}", (op.header,))
        name = "custom_call__c"
        return KernelCall(CFunction("external/custom_call.c.j2", name, spec, (), library, (op.function,)))
