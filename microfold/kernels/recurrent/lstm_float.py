"""LSTM cells of float32 in portable C."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.dynamic_quantize import vector_helper
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.recurrent.sequence import SEQUENCE_FIELDS, sequence_parameters
from microfold.ops.hybrid import weight_scales
from microfold.ops.recurrent.hybrid_lstm import HybridLstm
from microfold.ops.recurrent.lstm import OPTIONAL, Lstm


@register
class LstmFloat(Kernel):
    """Float LSTM, unit by unit: the sums of its gates, which share the loads of inputs, then cell and hidden.

    Rows of weights, biases and coefficients are ordered by unit: [units][gates]. Layer normalisation needs a
    gate of all units at once, so that the scratch stores the gates. A projection needs the results of all
    units, which the scratch also stores. Sums begin with the bias, so that their order differs from the
    reference's.
    """

    name = "f32_lstm__c"
    op = Lstm
    code = 900
    fields = declare(
        Field("input_weights", "[units][inputs][gates]"),
        Field("hidden_weights", "[units][outputs][gates]"),
        Field("biases", "[units][gates]"),
        Field("peephole", "[units][gates except g]"),
        Field("norm", "[units][gates]"),
        Field("projection", "[outputs][units]"),
        "projection_biases",
        "units",
        "outputs",
        *SEQUENCE_FIELDS,
        Field("cell_limit", "limit of the cell's magnitude"),
        Field("projection_limit", "limit of the output's magnitude"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not DType.FLOAT32:
            return f"it needs float32; got {x.dtype.value}"
        if any(layer.present(i) and layer.array(i) is None for i in (1, 2, 3, 6, 7, 8, 9)):
            return "weights and biases must be constant"
        if layer.node.epilogue:
            return f"it cannot fuse {layer.node.epilogue[0].op.name}"
        return None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 4, 5)

    def terms(self, layer: LayerContext) -> Terms:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        steps = x.shape[0] * x.shape[1]
        units = steps * layer.node.outputs[2].type.shape[1]
        return Terms(
            call=1,
            step=steps,
            unit=units,
            peephole=units * layer.present(9),
            output=steps * out.shape[2],
            product=layer.node.macs(),
        )

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, Lstm | HybridLstm)
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        units = layer.node.outputs[2].type.shape[1]
        given = {name: layer.array(6 + k) for k, name in enumerate(OPTIONAL)}
        weights, recurrent, bias = (layer.array(i) for i in (1, 2, 3))
        assert weights is not None and recurrent is not None and bias is not None
        gates = "ifgo" if len(bias) == 4 * units else "fgo"
        parameters: dict[str, Parameter] = {
            "input_weights": Constant("input_weights", self.pack_gates(weights, units)),
            "hidden_weights": Constant("hidden_weights", self.pack_gates(recurrent, units)),
            "biases": Constant("biases", _by_unit(bias, units)),
            "units": units,
            **sequence_parameters(x, out, op.time_major),
        }
        for name in ("peephole", "norm"):
            if (array := given[name]) is not None:
                parameters[name] = Constant(name, _by_unit(array, units))
        if (projection := given["projection"]) is not None:
            packed = Constant("projection", self.pack_projection(projection))
            parameters |= {"projection": packed, "outputs": out.shape[2]}
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
            ("scratch", floats > 0 or self.quantized(layer) > 0),
            *self.choice(layer),
        )
        function = CFunction("recurrent/lstm_f32.c.j2", self.name, spec, self.fields)
        scratch = 4 * floats + 2 * self.quantized(layer)
        return KernelCall(function, parameters | self.scales(layer), scratch)

    def pack_gates(self, rows: Array, units: int) -> Array:
        """Return rows of gates [gates * units, inputs] in reading order."""
        return _by_unit(rows, units)

    def pack_projection(self, matrix: Array) -> Array:
        """Return a matrix [outputs, units] in reading order."""
        return matrix

    def choice(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        """Return compile-time choices in addition to the optional parts of the cell."""
        return ()

    def scales(self, layer: LayerContext) -> dict[str, Parameter]:
        """Return the fields with scales of integer weights."""
        return {}

    def quantized(self, layer: LayerContext) -> int:
        """Return the number of activations that the scratch stores as integers."""
        return 0


@register
class LstmHybrid(LstmFloat):
    """Hybrid LSTM with int8 weights; x and hidden of each step are quantised in the scratch.

    The results of the units before a projection are later quantised in the same memory. Integer sums fit 32
    bits, which the operator's type rule checks. They are scaled and added to the bias.
    """

    name = "f32_s8w_hybrid_lstm__c"
    like = "f32_lstm__c"
    op = HybridLstm
    fields = (
        *LstmFloat.fields,
        *declare(
            Field("input_scales", "scale of the weights of each gate"),
            Field("hidden_scales", "scale of the weights of each gate"),
            "projection_scale",
        ),
    )

    def cost(self, layer: LayerContext) -> float:
        return super().cost(layer) + 40.0 * layer.node.operands[0].type.size

    def choice(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        assert isinstance(layer.node.op, HybridLstm)
        return (("hybrid", vector_helper(layer, layer.node.op.asymmetric)),)

    def scales(self, layer: LayerContext) -> dict[str, Parameter]:
        units = layer.node.outputs[2].type.shape[1]
        parameters: dict[str, Parameter] = {}
        for name, index in (("input_scales", 1), ("hidden_scales", 2)):
            value = layer.node.inputs[index]
            assert value is not None
            gates = np.ascontiguousarray(weight_scales(value.type, 0)[::units])
            parameters[name] = Constant(name, gates)
        projection = layer.node.inputs[7] if layer.present(7) else None
        if projection is not None:
            parameters["projection_scale"] = float(weight_scales(projection.type, 0)[0])
        return parameters

    def quantized(self, layer: LayerContext) -> int:
        x, hidden, cell = layer.node.operands[0].type, *(v.type for v in layer.node.outputs[1:])
        return max(x.shape[2] + hidden.shape[1], cell.shape[1])


def _by_unit(rows: Array, units: int) -> Array:
    """Reorder rows of gates, [gates * units, ...], to [units, ..., gates]."""
    gates = rows.reshape(-1, units, *rows.shape[1:])
    return np.ascontiguousarray(np.moveaxis(gates, 0, -1))
