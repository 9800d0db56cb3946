"""Simple recurrent layers of float32 in portable C."""

from __future__ import annotations

from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.dynamic_quantize import vector_helper
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.recurrent.sequence import SEQUENCE_FIELDS, sequence_parameters
from microfold.ops.hybrid import weight_scales
from microfold.ops.recurrent.hybrid_sequence_rnn import HybridSequenceRnn
from microfold.ops.recurrent.sequence_rnn import SequenceRnn

GROUP = 4

# C expressions of the sum, by the operator's activation.
EXPRESSIONS = {
    "none": "sum",
    "relu": "sum < 0.0f ? 0.0f : sum",
    "relu_n1_to_1": "mf_clamp_float(sum, -1.0f, 1.0f)",
    "relu6": "mf_clamp_float(sum, 0.0f, 6.0f)",
    "tanh": "tanhf(sum)",
}


@register
class SequenceRnnFloat(Kernel):
    """Simple recurrent layer, four units at a time; hidden is read from the output.

    Weights are [units / 4][inputs][4], padded with zeros after the last unit. Sums begin with the bias.
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
        return None if x.dtype is DType.FLOAT32 else f"it needs float32; got {x.dtype.value}"

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 4)

    def terms(self, layer: LayerContext) -> Terms:
        assert isinstance(layer.node.op, SequenceRnn | HybridSequenceRnn)
        size, tanh = layer.node.outputs[0].type.size, layer.node.op.activation == "tanh"
        return Terms(call=1, unit=size, tanh=size * tanh, product=layer.node.macs())

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        weights, recurrent, bias = (layer.array(i) for i in (1, 2, 3))
        assert isinstance(op, SequenceRnn | HybridSequenceRnn)
        assert weights is not None and recurrent is not None and bias is not None
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        parameters: dict[str, Parameter] = {
            "input_weights": Constant("input_weights", self.pack(weights)),
            "hidden_weights": Constant("hidden_weights", self.pack(recurrent)),
            "biases": Constant("biases", product_sum.pad_channels(bias, GROUP)),
            "units": len(bias),
            **sequence_parameters(x, out, op.time_major),
        }
        spec = (
            *self.choice(layer),
            ("expression", EXPRESSIONS[op.activation]),
            ("math", op.activation == "tanh"),
        )
        function = CFunction("recurrent/sequence_rnn.c.j2", self.name, spec, self.fields)
        return KernelCall(function, parameters | self.scales(layer), self.scratch(layer))

    def pack(self, matrix: Array) -> Array:
        """Return a matrix [units, inputs] in reading order."""
        return product_sum.interleave_channels(matrix, GROUP)

    def choice(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        """Return compile-time choices in addition to the activation."""
        return ()

    def scales(self, layer: LayerContext) -> dict[str, Parameter]:
        """Return the fields with scales of integer weights."""
        return {}

    def scratch(self, layer: LayerContext) -> int:
        """Return the bytes of scratch for quantised activations."""
        return 0


@register
class SequenceRnnHybrid(SequenceRnnFloat):
    """Simple hybrid recurrent layer with int8 weights; each step quantises x and hidden in the scratch.

    Integer sums fit 32 bits, which the operator's type rule checks. They are scaled and added to the bias.
    """

    name = "f32_s8w_hybrid_sequence_rnn__c_4"
    like = "f32_sequence_rnn__c_4"
    op = HybridSequenceRnn
    fields = (*SequenceRnnFloat.fields, *declare("input_scale", "hidden_scale"))

    def cost(self, layer: LayerContext) -> float:
        return super().cost(layer) + 40.0 * layer.node.operands[0].type.size

    def choice(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        assert isinstance(layer.node.op, HybridSequenceRnn)
        return (("hybrid", vector_helper(layer, layer.node.op.asymmetric)),)

    def scales(self, layer: LayerContext) -> dict[str, Parameter]:
        scales = (float(weight_scales(value.type, 0)[0]) for value in layer.node.operands[1:3])
        return dict(zip(("input_scale", "hidden_scale"), scales, strict=True))

    def scratch(self, layer: LayerContext) -> int:
        return 2 * sum(value.type.shape[1] for value in layer.node.operands[1:3])
