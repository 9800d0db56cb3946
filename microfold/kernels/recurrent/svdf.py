"""SVDF (a rank-limited filter with memory) in portable C."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.recurrent.svdf import Svdf


class _Svdf(Kernel):
    """SVDF that computes the result and the next state from input and state, one filter after the other.

    Each filter's state moves by one step. Its newest element is the product sum of the inputs and the
    `feature` weights [units * rank][inputs]. A unit adds its bias to the product sums of its filters' states
    and the `time` weights [units * rank][steps].

    Class attributes:
        dtype: element type of input and output.
    """

    dtype: ClassVar[DType]
    fields = declare(
        Field("feature", "[units * rank][inputs]"),
        Field("time", "[units * rank][steps]"),
        "biases",
        "batch",
        "inputs",
        "units",
        "rank",
        "steps",
        "input_zero_point",
        "state_zero_point",
        "state_minimum",
        "state_maximum",
        Field("into_multiplier", "multiplier from products with feature weights to the state"),
        "into_shift",
        "scale",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not self.dtype:
            return f"it needs {self.dtype.value}; got {x.dtype.value}"
        if any(layer.array(i) is None for i in (1, 2)) or (layer.present(3) and layer.array(3) is None):
            return "feature weights, time weights and bias must be constant"
        return output_range.unsupported_epilogue(layer.node)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 4)

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, output=layer.node.outputs[0].type.size, product=layer.node.macs())

    def call(
        self, layer: LayerContext, choice: tuple[tuple[str, SpecValue], ...], fields: dict[str, Parameter]
    ) -> KernelCall:
        assert isinstance(layer.node.op, Svdf)
        feature, time = layer.array(1), layer.array(2)
        assert feature is not None and time is not None
        x = layer.node.operands[0].type
        clamp, limits = output_range.clamping(layer.node)
        parameters: dict[str, Parameter] = {
            "feature": Constant("feature", feature),
            "time": Constant("time", time),
            "batch": x.shape[0],
            "inputs": x.shape[1],
            "units": feature.shape[0] // layer.node.op.rank,
            "rank": layer.node.op.rank,
            "steps": time.shape[1],
        }
        spec = (*choice, ("clamp", clamp))
        return KernelCall(
            CFunction("recurrent/svdf.c.j2", self.name, spec, self.fields), parameters | fields | limits
        )


@register
class SvdfInt8(_Svdf):
    """SVDF of int8 with a state of its own type, and the reference's requantisations with two roundings.

    The constant `scale` is one record: (0, multiplier, zero point, shift). The second sum begins with the
    bias and wraps around, as in the reference.
    """

    name = "s8_svdf__c"
    op = Svdf
    dtype = DType.INT8

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, Svdf)
        state = layer.node.inputs[4]
        quants = [v.type.quant for v in layer.node.inputs if v is not None and v.type.quant is not None]
        out = layer.node.outputs[0].type.quant
        assert state is not None and state.type.quant is not None and out is not None
        x, feature, time = quants[:3]
        into, out_of = op.multipliers(x, feature, time, state.type.quant)
        low, high = state.type.dtype.range
        units = layer.node.outputs[0].type.shape[1]
        bias = layer.array(3)
        fields: dict[str, Parameter] = {
            "biases": Constant("biases", np.zeros(units, np.int32) if bias is None else bias),
            "input_zero_point": x.zero_point,
            "state_zero_point": state.type.quant.zero_point,
            "state_minimum": low,
            "state_maximum": high,
            "into_multiplier": into.mantissa,
            "into_shift": into.shift,
            "scale": Constant(
                "scale",
                np.array([[0, out_of.mantissa, out.zero_point, out_of.shift]], np.int32),
                record="mf_channel",
            ),
        }
        return self.call(layer, (("type", "int8_t"), ("state_type", C_TYPES[state.type.dtype])), fields)


@register
class SvdfFloat(_Svdf):
    """SVDF of float32; sums begin with 0 and end with the bias."""

    name = "f32_svdf__c"
    op = Svdf
    dtype = DType.FLOAT32

    def lower(self, layer: LayerContext) -> KernelCall:
        units = layer.node.outputs[0].type.shape[1]
        bias = layer.array(3)
        biases = np.zeros(units, np.float32) if bias is None else bias
        fields: dict[str, Parameter] = {"biases": Constant("biases", biases)}
        return self.call(layer, (("type", "float"), ("state_type", "float")), fields)
