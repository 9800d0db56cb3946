"""int16 fully connected layers, int8 weights, for Helium."""

from __future__ import annotations

from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.conv2d.s16_mve import row_constants, row_cost, row_fields
from microfold.kernels.fully_connected.portable import centred_weights, fully_connected_types
from microfold.kernels.fully_connected.s16_dsp import int16_plan, unsupported_int16_fully_connected
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.fully_connected import FullyConnected


@register
class FullyConnectedInt16Mve(Kernel):
    """Blocks of 4 units, 8 products an instruction, in a tail-predicated loop.

    `weights` are int8 [outputs / 4][vectors][4][8], see `row_constants`; `plan_int16_requantization` proves
    the form of the records, and whether sums need 64 bits.
    """

    name = "s16_fully_connected__mve_4"
    op = FullyConnected
    features = frozenset({"mve"})

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_int16_fully_connected(layer)

    def cost(self, layer: LayerContext) -> float:
        x, _, out = fully_connected_types(layer)
        plan = int16_plan(layer)
        assert plan is not None
        return x.shape[0] * (row_cost(plan, x.shape[1], out.shape[1]) + 10) + 20

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        plan = int16_plan(layer)
        assert plan is not None
        clamp, limits = output_range.proved_clamping(layer)
        spec = (("requantize", plan.form), ("long", plan.long), ("clamp", clamp))
        parameters: dict[str, Parameter] = {
            **row_constants(plan, centred_weights(layer).astype("i1")),
            **matrix_parameters(x, out),
        }
        fields = (*row_fields(plan), *MATRIX_FIELDS, *output_range.LIMIT_FIELDS)
        return KernelCall(
            CFunction("fully_connected/s16_mve.c.j2", self.name, spec, fields), parameters | limits
        )
