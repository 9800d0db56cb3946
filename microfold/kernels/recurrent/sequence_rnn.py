"""Simple recurrent layers of float32 in portable C."""

from __future__ import annotations

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.recurrent.sequence import SEQUENCE_FIELDS, sequence_parameters
from microfold.ops.recurrent.sequence_rnn import SequenceRnn

GROUP = 4

# Of the sum, by the operator's activation.
EXPRESSIONS = {
    "none": "sum",
    "relu": "sum < 0.0f ? 0.0f : sum",
    "relu_n1_to_1": "mf_clamp_float(sum, -1.0f, 1.0f)",
    "relu6": "mf_clamp_float(sum, 0.0f, 6.0f)",
    "tanh": "tanhf(sum)",
}


@register
class SequenceRnnFloat(Kernel):
    """Four units at a time, which share the loads of inputs; hidden of the step before lies in the output.

    Weights are [units / 4][inputs][4], with zeros behind the last unit. Floats: sums begin with the bias.
    """

    name = "f32_sequence_rnn__c_4"
    op = SequenceRnn
    fields = declare(
        Field("input_weights", "[units / 4][inputs][4]"),
        Field("hidden_weights", "[units / 4][units][4]"),
        "biases",
        "units",
        *SEQUENCE_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        if any(layer.array(i) is None for i in (1, 2, 3)):
            return "weights and biases must be constant"
        if layer.node.epilogue:
            return f"it cannot fuse {layer.node.epilogue[0].op.name}"
        x = layer.node.operands[0].type
        return None if x.dtype is DType.FLOAT32 else f"it needs float32; the input is {x.dtype.value}"

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 4)

    def cost(self, layer: LayerContext) -> float:
        assert isinstance(layer.node.op, SequenceRnn)
        unit = 120.0 if layer.node.op.activation == "tanh" else 20.0
        return 3.2 * layer.node.macs() + unit * layer.node.outputs[0].type.size

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        weights, recurrent, bias = (layer.array(i) for i in (1, 2, 3))
        assert isinstance(op, SequenceRnn)
        assert weights is not None and recurrent is not None and bias is not None
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        parameters: dict[str, Parameter] = {
            "input_weights": Constant("input_weights", product_sum.interleave_channels(weights, GROUP)),
            "hidden_weights": Constant("hidden_weights", product_sum.interleave_channels(recurrent, GROUP)),
            "biases": Constant("biases", product_sum.pad_channels(bias, GROUP)),
            "units": len(bias),
            **sequence_parameters(x, out, op.time_major),
        }
        spec = (("expression", EXPRESSIONS[op.activation]), ("math", op.activation == "tanh"))
        return KernelCall(CFunction("recurrent/sequence_rnn.c.j2", self.name, spec, self.fields), parameters)
