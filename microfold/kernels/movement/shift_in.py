"""Sliding window over rows that is kept between runs, in portable C."""

from __future__ import annotations

import math

from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.movement.copy import copy_helper, copy_terms
from microfold.ops.movement.shift_in import ShiftIn


@register
class ShiftInPortable(Kernel):
    """Move of the kept rows to the front, then a copy of the new rows after them; as bytes, in place.

    The kernel has no constants. A run contains the elements along the axis and all axes after it.
    """

    name = "shift_in__c"
    like = "concatenate__c"
    op = ShiftIn
    fields = declare(
        Field("count", "number of windows"), Field("kept", "bytes that stay"), Field("added", "new bytes")
    )

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1)

    def replaces(self, layer: LayerContext) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def terms(self, layer: LayerContext) -> Terms:
        count, kept, added = self._runs(layer)
        return Terms(call=1) + copy_terms(count, kept) + copy_terms(count, added)

    def _runs(self, layer: LayerContext) -> tuple[int, int, int]:
        assert isinstance(layer.node.op, ShiftIn)
        window, rows = (value.type for value in layer.node.operands)
        count = math.prod(window.shape[: layer.node.op.axis])
        added = rows.nbytes // count
        return count, window.nbytes // count - added, added

    def lower(self, layer: LayerContext) -> KernelCall:
        # memcpy must not be used if source and target overlap.
        copy = "mf_copy_bytes" if copy_helper(layer) == "memcpy" else copy_helper(layer)
        parameters: dict[str, Parameter] = dict(
            zip(("count", "kept", "added"), self._runs(layer), strict=True)
        )
        function = CFunction("movement/shift_in.c.j2", self.name, (("copy", copy),), self.fields)
        return KernelCall(function, parameters)
