"""LSTM cells of float32 in portable C."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.recurrent.sequence import SEQUENCE_FIELDS, sequence_parameters
from microfold.ops.recurrent.lstm import OPTIONAL, Lstm


@register
class LstmFloat(Kernel):
    """Unit by unit: the sums of its gates, which share the loads of inputs, then the cell and hidden.

    Rows of weights, biases and coefficients are by units: [units][gates]. With layer normalisation, which
    needs a gate of all units, the scratch has the gates; with a projection, the units' results.
    Floats: sums begin with the bias, in another order than the reference's.
    """

    name = "f32_lstm__c"
    op = Lstm
    code = 900
    fields = declare(
        Field("input_weights", "[units][inputs][gates]"),
        Field("hidden_weights", "[units][outputs][gates]"),
        Field("biases", "[units][gates]"),
        Field("peephole", "[units][gates but g]"),
        Field("norm", "[units][gates]"),
        Field("projection", "[outputs][units]"),
        "projection_biases",
        "units",
        "outputs",
        *SEQUENCE_FIELDS,
        Field("cell_limit", "of the cell's magnitude"),
        Field("projection_limit", "of the output's magnitude"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not DType.FLOAT32:
            return f"it needs float32; the input is {x.dtype.value}"
        if any(layer.present(i) and layer.array(i) is None for i in (1, 2, 3, 6, 7, 8, 9)):
            return "weights and biases must be constant"
        if layer.node.epilogue:
            return f"it cannot fuse {layer.node.epilogue[0].op.name}"
        return None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 4, 5)

    def cost(self, layer: LayerContext) -> float:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        units = layer.node.outputs[2].type.shape[1]
        functions = 450.0 + 60.0 * layer.present(9)
        return 4.1 * layer.node.macs() + x.shape[0] * x.shape[1] * (functions * units + 10 * out.shape[2])

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, Lstm)
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        units = layer.node.outputs[2].type.shape[1]
        given = {name: layer.array(6 + k) for k, name in enumerate(OPTIONAL)}
        weights, recurrent, bias = (layer.array(i) for i in (1, 2, 3))
        assert weights is not None and recurrent is not None and bias is not None
        gates = "ifgo" if len(bias) == 4 * units else "fgo"
        parameters: dict[str, Parameter] = {
            "input_weights": Constant("input_weights", _by_unit(weights, units)),
            "hidden_weights": Constant("hidden_weights", _by_unit(recurrent, units)),
            "biases": Constant("biases", _by_unit(bias, units)),
            "units": units,
            **sequence_parameters(x, out, op.time_major),
        }
        for name in ("peephole", "norm"):
            if (array := given[name]) is not None:
                parameters[name] = Constant(name, _by_unit(array, units))
        if (projection := given["projection"]) is not None:
            parameters |= {"projection": Constant("projection", projection), "outputs": out.shape[2]}
            if (biases := given["projection_bias"]) is not None:
                parameters["projection_biases"] = Constant("projection_biases", biases)
            if op.projection_clip:
                parameters["projection_limit"] = float(np.float32(op.projection_clip))
        if op.cell_clip:
            parameters["cell_limit"] = float(np.float32(op.cell_clip))
        floats = units * (len(gates) * ("norm" in parameters) + ("projection" in parameters))
        spec = (
            ("gates", gates),
            *((name, name in parameters) for name in ("peephole", "norm", "projection")),
            ("projection_bias", "projection_biases" in parameters),
            ("clip", "cell_limit" in parameters),
            ("projection_clip", "projection_limit" in parameters),
            ("scratch", floats > 0),
        )
        function = CFunction("recurrent/lstm_f32.c.j2", self.name, spec, self.fields)
        return KernelCall(function, parameters, scratch=4 * floats)


def _by_unit(rows: Array, units: int) -> Array:
    """Rows of gates, [gates * units, ...], as [units, ..., gates]."""
    gates = rows.reshape(-1, units, *rows.shape[1:])
    return np.ascontiguousarray(np.moveaxis(gates, 0, -1))
