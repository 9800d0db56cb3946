"""float16 fully connected layers in portable C, and for Helium (MVE) with floats."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.fully_connected.portable import fully_connected_types
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.packing.float16_mve import LANES, half_biases, half_blocks, run_terms
from microfold.kernels.packing.float32_block import float_clamping
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.fully_connected import FullyConnected

# Number of units that are computed together, in four vectors.
UNITS = 32


class _HalfFullyConnected(Kernel):
    """Base class of float16 kernels with constant weights and bias."""

    op = FullyConnected

    def supports(self, layer: LayerContext) -> str | None:
        return product_sum.unsupported_constants(layer, DType.FLOAT16, DType.FLOAT16)


@register
class FullyConnectedHalf(_HalfFullyConnected):
    """float16 fully connected layer of one unit at a time. Sums are float32, and are rounded once.

    Weights keep the model's order, [outputs][inputs]. Biases are float32.
    """

    name = "f16_fully_connected__c"

    fields = declare(
        Field("weights", "float16, [outputs][inputs]"),
        Field("channels", "biases"),
        *MATRIX_FIELDS,
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, output=layer.node.output.type.size, product=layer.node.macs())

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        weights = layer.array(1)
        assert weights is not None
        clamp, limits = output_range.clamping(layer.node)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", weights),
            "channels": Constant("biases", half_biases(layer, out.shape[1]).astype(np.float32)),
            **matrix_parameters(x, out),
        }
        function = CFunction("fully_connected/f16.c.j2", self.name, (("clamp", clamp),), self.fields)
        return KernelCall(function, parameters | limits)


@register
class FullyConnectedHalfMve(_HalfFullyConnected):
    """float16 fully connected layer of 32 units at a time, then 8. Up to 64 products are summed in float16.

    Weights are [outputs / 32][inputs][32], then [rest / 8][inputs][8], because an input is multiplied by a
    vector of units. The sums are not bit-identical to float32 sums.
    """

    name = "f16_fully_connected__mve_32"
    features = frozenset({"mve_fp"})
    fields = declare(
        Field("weights", "float16, [outputs / 32][inputs][32], then [outputs % 32 / 8][inputs][8]"),
        Field("channels", "biases, float16"),
        *MATRIX_FIELDS,
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        blocks, rest = out.shape[1] // UNITS, -(-(out.shape[1] % UNITS) // LANES)
        row = Terms(row=1) + blocks * (Terms(block=1) + run_terms(x.shape[1], 1, 4))
        row += rest * (Terms(single=1) + run_terms(x.shape[1], 1, 1))
        return Terms(call=1) + x.shape[0] * row

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        weights = layer.array(1)
        assert weights is not None
        clamp_kind, limits = float_clamping(layer)
        wide = out.shape[1] // UNITS * UNITS
        packed = [half_blocks(weights[:wide], UNITS), half_blocks(weights[wide:], LANES)]
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", np.concatenate([part.reshape(-1) for part in packed])),
            "channels": Constant("biases", half_biases(layer, out.shape[1], LANES)),
            **matrix_parameters(x, out),
        }
        function = CFunction(
            "fully_connected/f16_mve.c.j2", self.name, (("clamp_kind", clamp_kind),), self.fields
        )
        return KernelCall(function, parameters | dict(limits))
