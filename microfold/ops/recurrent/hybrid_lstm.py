"""Long short-term memory over a sequence, with float32 activations and integer weights."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op, register
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.recurrent import hybrid, sequence
from microfold.ops.recurrent.lstm import Lstm


@register
class HybridLstm(Op, frozen=True):
    """`Lstm` of float32 with int8 weights and projection, with one scale per gate and one for the projection.

    In every step, each row of x and of hidden is quantised like in `dynamic_quantize`, and also the results
    of the units before a projection. The reference is LiteRT's `LstmStepHybrid`
    (tensorflow/lite/kernels/lstm_eval.cc).
    """

    name: ClassVar[str] = "hybrid_lstm"

    time_major: bool
    cell_clip: float
    projection_clip: float
    asymmetric: bool

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
        element = ElementType(DType.FLOAT32)
        result = Lstm(self.time_major, self.cell_clip, self.projection_clip, element).infer(
            x,
            hybrid.real(input_weights),
            hybrid.real(recurrent_weights),
            bias,
            hidden,
            cell,
            peephole,
            hybrid.real(projection) if projection is not None else None,
            projection_bias,
            norm,
        )
        gates = bias.size // cell.shape[1]
        hybrid.check_weights(self.name, "input weights", input_weights, gates)
        hybrid.check_weights(self.name, "recurrent weights", recurrent_weights, gates)
        if projection is not None:
            hybrid.check_weights(self.name, "the projection", projection, 1)
        return result

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
        parts = (t.data if t is not None else None for t in (peephole, projection, projection_bias, norm))
        step = hybrid.HybridCell(
            input_weights.data,
            recurrent_weights.data,
            bias.data,
            *parts,
            clips=(self.cell_clip, self.projection_clip),
            weights=(input_weights, recurrent_weights, projection),
            asymmetric=self.asymmetric,
        ).step
        steps = sequence.steps_first(x.data, self.time_major)
        return sequence.run(step, steps, (hidden.data, cell.data), self.time_major)

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
