"""Fully connected layers of int16 activations and int8 weights for Helium (MVE)."""

from __future__ import annotations

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.conv2d.s16_mve import row_fields, row_finish, row_terms, row_weights
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fully_connected.portable import (
    centred_weights,
    fully_connected_types,
    unit_multipliers,
)
from microfold.kernels.fully_connected.s16_dsp import int16_plan, unsupported_int16_fully_connected
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import mve
from microfold.kernels.requantize.finish import OutputStage
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.fully_connected import FullyConnected


@register
class FullyConnectedInt16Mve(Kernel):
    """Fully connected layer in blocks of 4 units, 8 products per instruction, in a tail-predicated loop.

    `weights` is int8 [outputs / 4][vectors][4][8], see `row_weights`. `plan_int16_requantization` proves the
    form of the records, and whether sums need 64 bits.
    """

    name = "s16_fully_connected__mve_4"
    op = FullyConnected
    features = frozenset({"mve"})

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_int16_fully_connected(layer)

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        plan = int16_plan(layer)
        assert plan is not None
        return Terms(call=1) + x.shape[0] * row_terms(plan, x.shape[1], out.shape[1])

    def finish(self, layer: LayerContext) -> OutputStage:
        """Return the finish, which computes outputs from sums."""
        plan = int16_plan(layer)
        assert plan is not None
        return row_finish(layer, plan, centred_weights(layer), unit_multipliers(layer))

    def pack(self, matrix: Array) -> Constant:
        """Return weights [units, K] in the layout of the C code."""
        return row_weights(matrix)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        finish = self.finish(layer)
        matrix = layer.array(1)
        assert matrix is not None
        parameters: dict[str, Parameter] = {
            "weights": self.pack(matrix),
            **finish.parameters,
            **matrix_parameters(x, out),
        }
        fields = row_fields(finish, MATRIX_FIELDS)
        spec = (*finish.spec, ("tail", out.shape[1] % mve.BLOCK != 0))
        return KernelCall(CFunction("fully_connected/s16_mve.c.j2", self.name, spec, fields), parameters)
