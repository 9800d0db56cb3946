"""Long short-term memory over a sequence."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import require_per_tensor
from microfold.ops.recurrent import sequence
from microfold.ops.recurrent.lstm_float import FloatCell
from microfold.ops.recurrent.lstm_integer import IntegerCell, check_multipliers

# Optional parts of a cell, in floating point only.
OPTIONAL = ("peephole", "projection", "projection_bias", "norm")


@register
class Lstm(Op, frozen=True):
    """Cell of U units that reads a sequence step by step.

    The products ``p = input_weights @ x + bias + recurrent_weights @ hidden`` have U rows for each of the
    gates i, f, g and o, in this order. Each step computes::

        cell   = sigmoid(p_f) * cell + sigmoid(p_i) * tanh(p_g), clipped to ±cell_clip unless that is 0
        hidden = sigmoid(p_o) * tanh(cell)

    Operands are ``x [N, T, I]``, or [T, N, I] if `time_major`; ``input_weights [4 * U, I]``,
    ``recurrent_weights [4 * U, H]``, ``bias [4 * U]``, ``hidden [N, H]`` and ``cell [N, U]``. H is U without
    a projection. Results are hidden of all steps, in the layout of x, and both states for the next call.

    If there is no gate i (3 * U rows), ``1 - f`` replaces it. The other options exist for floats only:

    - ``peephole`` has U weights for each of the gates i, f and o. They are multiplied with the cell (for o,
      the new cell) and added to the gate's products.
    - ``norm [4 * U]`` multiplies products that are normalised over their gate, before the bias is added.
    - ``projection [H, U]`` and ``projection_bias [H]`` compute hidden from the results of the units, clipped
      to ±projection_clip.

    For int8 and int16, weights are int8 with one scale, or with one for each row. Products are int16 at scale
    2^-12; the products with x and with hidden are rounded and saturated separately. The cell is int16.
    Results have the integers of hidden, whatever scale `out` has.
    """

    name: ClassVar[str] = "lstm"

    time_major: bool
    cell_clip: float
    projection_clip: float
    out: ElementType

    def infer(
        self,
        x: TensorType,
        input_weights: TensorType,
        recurrent_weights: TensorType,
        bias: TensorType,
        hidden: TensorType,
        cell: TensorType,
        peephole: TensorType | None = None,
        projection: TensorType | None = None,
        projection_bias: TensorType | None = None,
        norm: TensorType | None = None,
    ) -> tuple[TensorType, TensorType, TensorType]:
        layout = sequence.check_input("lstm", x, self.time_major)
        outputs, units = sequence.check_states("lstm", layout, hidden, cell)
        gates = bias.size // max(units, 1)
        rows = gates * units
        require(
            gates in (3, 4)
            and bias.shape == (rows,)
            and input_weights.shape == (rows, layout.inputs)
            and recurrent_weights.shape == (rows, outputs),
            f"lstm: {units} units need input weights [4 * {units}, {layout.inputs}], recurrent weights "
            f"[4 * {units}, {outputs}] and biases [4 * {units}], or 3 * {units} rows; they are "
            f"{input_weights}, {recurrent_weights} and {bias}",
        )
        require(
            projection is not None or (outputs == units and projection_bias is None),
            f"lstm: without a projection, hidden must have {units} elements; it is {hidden}",
        )
        optional = zip(
            OPTIONAL,
            (peephole, projection, projection_bias, norm),
            ((rows - units,), (outputs, units), (outputs,), (rows,)),
            strict=True,
        )
        for what, type, shape in optional:
            require(
                type is None or (type.dtype is DType.FLOAT32 and type.shape == shape),
                f"lstm: {what} must be float32 {list(shape)}; it is {type}",
            )
        sequence.check_clips("lstm", self.cell_clip, self.projection_clip)
        if x.dtype is DType.FLOAT32:
            dtypes = {type.dtype for type in (input_weights, recurrent_weights, bias, hidden, cell, self.out)}
            require(dtypes == {DType.FLOAT32}, "lstm: all operands of a float32 cell must be float32")
        else:
            require(
                gates == 4 and peephole is projection is norm is None,
                "lstm: a quantised cell must have four gates, without peephole, projection or layer "
                "normalisation",
            )
            self._check_integers(x, input_weights, recurrent_weights, bias, hidden, cell)
        result = TensorType(self.out.dtype, layout.shape(outputs), self.out.quant)
        return result, hidden, cell

    def _check_integers(
        self,
        x: TensorType,
        input_weights: TensorType,
        recurrent_weights: TensorType,
        bias: TensorType,
        hidden: TensorType,
        cell: TensorType,
    ) -> None:
        wide = x.dtype is DType.INT16
        wanted = (
            *(x.dtype, DType.INT8, DType.INT8, DType.INT64 if wide else DType.INT32),
            *(x.dtype, DType.INT16, x.dtype),
        )
        given = (
            *(x.dtype, input_weights.dtype, recurrent_weights.dtype, bias.dtype),
            *(hidden.dtype, cell.dtype, self.out.dtype),
        )
        require(
            x.dtype in (DType.INT8, DType.INT16) and given == wanted,
            "lstm: input, both weights, bias, hidden, cell and output must be int8, int8, int8, int32, int8, "
            "int16, int8, or int16, int8, int8, int64, int16, int16, int16; they are "
            + ", ".join(dtype.value for dtype in given),
        )
        require_per_tensor("lstm", input=x, hidden=hidden, cell=cell, output=self.out)
        for type in (input_weights, recurrent_weights):
            require(
                type.quant is not None and type.quant.axis in (None, 0) and not any(type.quant.zero_points),
                "lstm: weights must have zero point 0 and scales for the tensor or for each row",
            )
        assert cell.quant is not None and x.quant is not None and hidden.quant is not None
        require(
            2.0**-30 <= cell.quant.scale <= 1,
            f"lstm: the scale of an int16 cell must be in [2^-30, 1]; it is {cell.quant.scale:g}",
        )
        assert input_weights.quant is not None and recurrent_weights.quant is not None
        # Raises an error if the scales have no multiplier.
        check_multipliers(x, input_weights.quant, recurrent_weights.quant, hidden.quant, cell.quant)

    def reference(
        self,
        x: Tensor,
        input_weights: Tensor,
        recurrent_weights: Tensor,
        bias: Tensor,
        hidden: Tensor,
        cell: Tensor,
        peephole: Tensor | None = None,
        projection: Tensor | None = None,
        projection_bias: Tensor | None = None,
        norm: Tensor | None = None,
    ) -> tuple[Array, ...]:
        steps = sequence.steps_first(x.data, self.time_major)
        if x.type.dtype.is_float:
            optional = (None if t is None else t.data for t in (peephole, projection, projection_bias, norm))
            step = FloatCell(
                input_weights.data,
                recurrent_weights.data,
                bias.data,
                *optional,
                clips=(self.cell_clip, self.projection_clip),
            ).step
            inputs = steps
        else:
            integer = IntegerCell.of(
                x.type, input_weights, recurrent_weights, bias, hidden.type, cell.type, self.cell_clip
            )
            step, inputs = integer.step, integer.input_products(steps)
        return sequence.run(step, inputs, (hidden.data, cell.data), self.time_major)

    def macs(
        self,
        x: TensorType,
        input_weights: TensorType,
        recurrent_weights: TensorType,
        _bias: TensorType,
        _hidden: TensorType,
        _cell: TensorType,
        _peephole: TensorType | None = None,
        projection: TensorType | None = None,
        *_: TensorType | None,
    ) -> int:
        return sequence.products(x, input_weights, recurrent_weights, projection)
