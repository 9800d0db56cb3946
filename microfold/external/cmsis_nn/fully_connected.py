"""Fully connected layers through CMSIS-NN."""

from __future__ import annotations

import numpy as np

from microfold.external.cmsis_nn import library
from microfold.external.cmsis_nn.library import CMSIS_NN
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.fields import Field, declare
from microfold.kernels.fully_connected.portable import (
    centred_weights,
    fully_connected_types,
    unit_multipliers,
    unsupported_integer_fully_connected,
    weights_zero_point,
)
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.fully_connected import FullyConnected


class FullyConnectedS8(Kernel):
    """Fully connected layer with one multiplier for all units, or one for each."""

    name = "s8_fully_connected__cmsis_nn"
    op = FullyConnected
    fields = declare(
        Field("weights", "[outputs][inputs]"),
        *library.CHANNEL_FIELDS,
        Field("sums", "bias[i] + input_offset * (weights[i][0] + weights[i][1] + ...)"),
        *MATRIX_FIELDS,
        *library.OUTPUT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_fully_connected(layer)
        if reason is None and weights_zero_point(layer):
            return f"weights must have zero point 0; it is {weights_zero_point(layer)}"
        if reason is not None:
            return reason
        mantissas, shifts = unit_multipliers(layer)
        _, bounds = product_sum.bias_and_bounds(layer, centred_weights(layer))
        return library.unsupported_shifts(shifts, mantissas, bounds)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, weights, out = fully_connected_types(layer)
        matrix = layer.array(1)
        assert matrix is not None
        assert x.quant is not None and weights.quant is not None and out.quant is not None
        per_channel = weights.quant.axis is not None
        mantissas, shifts = unit_multipliers(layer)
        constants = library.requantization(layer.array(2), mantissas, shifts)
        if not per_channel:
            constants |= {
                "multipliers": Constant("multipliers", mantissas[:1]),
                "shifts": Constant("shifts", shifts[:1]),
            }
        low, high = output_range.integer_bounds(layer.node)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", matrix),
            **constants,
            **matrix_parameters(x, out),
            "input_offset": -x.quant.zero_point,
            "output_offset": out.quant.zero_point,
            "output_minimum": low,
            "output_maximum": high,
        }
        sums = layer.target.has("mve")
        if sums:
            # Results of `arm_vector_sum_s8`, from which accumulators start on cores with vectors.
            totals, _ = product_sum.bias_and_bounds(layer, centred_weights(layer))
            parameters["sums"] = Constant("sums", totals.astype(np.int32))
        name = "arm_fully_connected_wrapper_s8"
        calls = (name, "arm_fully_connected_s8_get_buffer_size")
        spec = (("per_channel", per_channel), ("sums", sums))
        return KernelCall(
            CFunction(
                "external/cmsis_nn/fully_connected.c.j2", self.name, spec, self.fields, CMSIS_NN, calls
            ),
            parameters,
        )
