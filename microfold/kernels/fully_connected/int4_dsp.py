"""int8 fully connected layers with 4-bit weights for cores with the DSP extension."""

from __future__ import annotations

from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import declare
from microfold.kernels.fully_connected.int4 import FullyConnectedInt4
from microfold.kernels.fully_connected.portable import (
    centred_weights,
    fully_connected_types,
    unit_multipliers,
)
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import int4_dsp, smlad
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import MATRIX_FIELDS


@register
class FullyConnectedDspInt4(FullyConnectedInt4):
    """SMLAD fully connected layer of 8 units at a time, then 4. Inputs are widened to int16 on the fly.

    `packing.int4_dsp` defines the layout, and proves how four sums are extracted from one.
    `smlad.plan_requantization` proves the requantisation.
    """

    name = "s8_s4w_fully_connected__dsp"
    features = frozenset({"dsp"})
    code = 850
    fields = declare(
        *int4_dsp.ROW_FIELDS,
        *MATRIX_FIELDS,
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        x, _, _ = fully_connected_types(layer)
        matrix = centred_weights(layer)
        form = smlad.plan_requantization(layer, matrix, unit_multipliers(layer), common=False).form
        return Terms(call=1) + x.shape[0] * int4_dsp.row_terms(matrix, form)

    def lower(self, layer: LayerContext) -> KernelCall:
        matrix = centred_weights(layer)
        choice, constants = int4_dsp.constants(layer, matrix, unit_multipliers(layer), together=2)
        spec = (*choice, ("rest", matrix.shape[1] % 4 != 0))
        fields = {**constants, **self.shape(layer)}
        return KernelCall(CFunction("fully_connected/int4_dsp.c.j2", self.name, spec, self.fields), fields)
