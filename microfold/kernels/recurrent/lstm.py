"""LSTM cells of int8 and int16 in portable C, and the base class of all integer LSTM kernels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec import Struct

from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.recurrent.gates import GateMatrix, plan_int8, wide_records
from microfold.kernels.recurrent.sequence import SEQUENCE_FIELDS, sequence_parameters
from microfold.ops.elementwise.activations.logistic import sigmoid_table
from microfold.ops.recurrent.lstm import Lstm
from microfold.ops.recurrent.lstm_integer import cell_parameters

SMALLEST_INT16_SHIFT = -47  # smallest shift of a 16-bit multiplier


class Products(Struct, frozen=True):
    """Packed gate products of a cell, and the choices for their code.

    Attributes:
        choice: compile-time choices of the C function.
        matrices: for each of the two matrices: packed weights, initial sums [units][4], and records of the
            gates.
    """

    choice: tuple[tuple[str, SpecValue], ...]
    matrices: tuple[tuple[Array, Array, Array], ...]


class IntegerLstm(Kernel):
    """Integer LSTM, unit by unit: the four gates' products of input and hidden, then the cell and hidden.

    Gate values are used at once, so that the kernel needs no scratch. It reads hidden of the previous step
    from the output, and updates `next_cell` in place. Products are requantised by one record for each gate
    and matrix; `plan_int8` proves the form. Activations interpolate in the reference's table of the logistic
    function. The multiplications after them round twice, like the reference's.

    Class attributes:
        dtype: element type of input, hidden and output.
        template: path of the C template.
    """

    op = Lstm
    dtype: ClassVar[DType]
    template: ClassVar[str] = "recurrent/lstm.c.j2"
    code = 900
    fields = declare(
        "input_weights",
        Field("input_starts", "[units][4]: initial sums of the gates i, f, g and o"),
        Field("input_channels", "[4]"),
        "hidden_weights",
        Field("hidden_starts", "[units][4]"),
        Field("hidden_channels", "[4]"),
        Field("table", "logistic function at multiples of 1/24 in Q0.16"),
        "units",
        *SEQUENCE_FIELDS,
        Field("added_multiplier", "multiplier from products of gates to the cell"),
        "added_rounding",
        "added_shift",
        Field("tanh_multiplier", "multiplier from the cell to the scale of the table"),
        "tanh_rounding",
        "tanh_shift",
        Field("output_multiplier", "multiplier from products of gates to hidden"),
        "output_rounding",
        "output_shift",
        "output_zero_point",
        Field("cell_limit", "limit of the cell's magnitude"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not self.dtype:
            return f"it needs {self.dtype.value}; got {x.dtype.value}"
        if any(layer.array(i) is None for i in (1, 2, 3)):
            return "weights and biases must be constant"
        if layer.node.epilogue:
            return f"it cannot fuse {layer.node.epilogue[0].op.name}"
        if any(matrix.multipliers is None for matrix in self.matrices(layer)):
            return "all rows of a gate must have one scale"
        return self.refuses(layer)

    def refuses(self, layer: LayerContext) -> str | None:
        """Return the reason if other conditions of the kernel fail; None if all hold."""
        raise NotImplementedError

    def products(self, layer: LayerContext) -> Products:
        """Return the packed products of the gates."""
        raise NotImplementedError

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 4, 5)

    def matrices(self, layer: LayerContext) -> tuple[GateMatrix, GateMatrix]:
        """Return the weights of the input and of hidden."""
        found: list[GateMatrix] = []
        for source, weights, bias in ((0, 1, layer.array(3)), (4, 2, None)):
            x, array = layer.node.inputs[source], layer.array(weights)
            matrix = layer.node.inputs[weights]
            assert x is not None and x.type.quant is not None and array is not None
            assert matrix is not None and matrix.type.quant is not None
            found.append(GateMatrix.of(self.dtype, x.type.quant, matrix.type.quant, array, bias))
        return found[0], found[1]

    def multiplication(self, multiplier: Multiplier, name: str) -> dict[str, Parameter]:
        """Return the fields of a multiplication after the gates."""
        return {f"{name}_multiplier": multiplier.mantissa, f"{name}_shift": multiplier.shift}

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        x, _, _, _, hidden, cell = (value.type for value in layer.node.operands[:6])
        assert isinstance(op, Lstm) and hidden.quant is not None and cell.quant is not None
        products = self.products(layer)
        known = cell_parameters(hidden.quant, cell.quant, op.cell_clip)
        parameters: dict[str, Parameter] = {
            "table": Constant("table", sigmoid_table()),
            "units": cell.shape[1],
            **sequence_parameters(x, layer.node.outputs[0].type, op.time_major),
            **self.multiplication(known.input, "added"),
            "tanh_multiplier": known.tanh.multiplier,
            "tanh_rounding": 1 << (known.tanh.shift - 1) if known.tanh.shift else 0,
            "tanh_shift": known.tanh.shift,
            **self.multiplication(known.hidden, "output"),
            "output_zero_point": hidden.quant.zero_point,
        }
        if known.limit is not None:
            parameters["cell_limit"] = known.limit
        for name, (weights, starts, channels) in zip(("input", "hidden"), products.matrices, strict=True):
            parameters |= {
                f"{name}_weights": Constant(f"{name}_weights", weights),
                f"{name}_starts": Constant(f"{name}_starts", starts),
                f"{name}_channels": Constant(f"{name}_channels", channels, record="mf_channel"),
            }
        spec = (*products.choice, ("clip", known.limit is not None))
        return KernelCall(CFunction(self.template, self.name, spec, self.fields), parameters)


def step_count(layer: LayerContext) -> int:
    """Return the number of steps of all sequences of the batch."""
    x = layer.node.operands[0].type
    return x.shape[0] * x.shape[1]


def unit_count(layer: LayerContext) -> int:
    """Return the number of unit results over all steps."""
    return step_count(layer) * layer.node.operands[5].type.shape[1]


class _Portable(IntegerLstm):
    """Integer LSTM in portable C, with weights [units][inputs][4]; the sums of a unit share input loads."""

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, step=step_count(layer), unit=unit_count(layer), product=layer.node.macs())

    def packed(self, layer: LayerContext, form: str, records: list[Array], wide: bool) -> Products:
        """Return the unpacked matrices, with 64-bit sums if `wide`."""
        matrices = tuple(
            (
                np.ascontiguousarray(matrix.weights.swapaxes(1, 2)),
                matrix.biases.astype(np.int64 if wide else np.int32),
                record,
            )
            for matrix, record in zip(self.matrices(layer), records, strict=True)
        )
        choice = (
            ("type", C_TYPES[self.dtype]),
            ("products", "portable"),
            ("requantize", form),
            ("accumulator", "int64_t" if wide else "int32_t"),
        )
        return Products(choice, matrices)


@register
class LstmInt8(_Portable):
    """LSTM of int8; sums that may exceed 32 bits are computed in 64, and wrap around like the reference's."""

    name = "s8_lstm__c_4"
    dtype = DType.INT8

    def refuses(self, layer: LayerContext) -> str | None:
        return None

    def products(self, layer: LayerContext) -> Products:
        form, records = plan_int8(self.matrices(layer))
        return self.packed(layer, form, records, form == "wrapped")


@register
class LstmInt16(_Portable):
    """LSTM of int16, with 64-bit sums and the reference's 16-bit multipliers."""

    name = "s16_lstm__c_4"
    dtype = DType.INT16

    def refuses(self, layer: LayerContext) -> str | None:
        if any(
            m.multipliers is not None and m.multipliers[1].min() < SMALLEST_INT16_SHIFT
            for m in self.matrices(layer)
        ):
            return "a multiplier is too small"
        return None

    def products(self, layer: LayerContext) -> Products:
        return self.packed(layer, "wide", wide_records(self.matrices(layer)), wide=True)
