"""Standardisation of rows, in portable C."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.normalize.row import RowKernel
from microfold.ops.normalize.standardize import Standardize


@register
class StandardizeFloat(RowKernel):
    """Standardisation by the sum of a row, the sum of squared differences from the mean, then each element.

    Sums are in the order of the row. The constants `scale` and `shift` have one number each, or one for each
    element of a row. A constant that changes no element is omitted.
    """

    name = "f32_standardize__c"
    op = Standardize
    dtypes = (DType.FLOAT32, DType.FLOAT32)
    fields = declare(
        "rows",
        "depth",
        Field("count", "elements of a row, as a float"),
        "epsilon",
        "scale",
        "shift",
    )

    def supports(self, layer: LayerContext) -> str | None:
        if layer.array(1) is None or layer.array(2) is None:
            return "it needs a constant scale and shift"
        return "it does not support an epilogue" if layer.node.epilogue else super().supports(layer)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0,)

    def terms(self, layer: LayerContext) -> Terms:
        size, rows = layer.node.output.type.size, self.shape(layer)["rows"]
        assert isinstance(rows, int)
        scaled, shifted = (bool(kind) for _, kind in self._constants(layer).values())
        return Terms(call=1, row=rows, element=size, scaled=size * scaled, shifted=size * shifted)

    def _constants(self, layer: LayerContext) -> dict[str, tuple[Parameter, str]]:
        """Return scale and shift with their kind: ``number``, ``row``, or empty if they change no element."""
        found: dict[str, tuple[Parameter, str]] = {}
        for index, name, nothing in ((1, "scale", 1.0), (2, "shift", 0.0)):
            array = layer.array(index)
            assert array is not None
            if np.all(array == nothing):
                found[name] = (None, "")
            elif array.size == 1:
                found[name] = (float(array.reshape(())), "number")
            else:
                found[name] = (Constant(name, array), "row")
        return found

    def lower(self, layer: LayerContext) -> KernelCall:
        op, constants = layer.node.op, self._constants(layer)
        assert isinstance(op, Standardize)
        parameters = self.shape(layer)
        parameters |= {"count": float(layer.node.output.type.shape[-1]), "epsilon": float(op.epsilon)}
        parameters |= {name: value for name, (value, kind) in constants.items() if kind}
        spec = tuple((name, kind) for name, (_, kind) in constants.items())
        return KernelCall(CFunction("normalize/standardize.c.j2", self.name, spec, self.fields), parameters)
