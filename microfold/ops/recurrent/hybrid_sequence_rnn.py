"""Simple recurrent layer over a sequence, with float32 activations and integer weights."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register
from microfold.ir.types import Array, Tensor, TensorType
from microfold.ops.recurrent import hybrid, sequence
from microfold.ops.recurrent.sequence_rnn import ACTIVATIONS, SequenceRnn


@register
class HybridSequenceRnn(Op, frozen=True):
    """`SequenceRnn` with int8 weights, with one scale per matrix.

    In every step, each row of x and of hidden is quantised like in `dynamic_quantize`. The reference is
    LiteRT's `RnnBatchStep` (tensorflow/lite/kernels/internal/kernel_utils.cc).
    """

    name: ClassVar[str] = "hybrid_sequence_rnn"

    time_major: bool
    activation: str
    asymmetric: bool

    def infer(
        self,
        x: TensorType,
        input_weights: TensorType,
        recurrent_weights: TensorType,
        bias: TensorType,
        hidden: TensorType,
    ) -> tuple[TensorType, TensorType]:
        weights = hybrid.real(input_weights), hybrid.real(recurrent_weights)
        result = SequenceRnn(self.time_major, self.activation).infer(x, *weights, bias, hidden)
        hybrid.check_weights(self.name, "input weights", input_weights, 1)
        hybrid.check_weights(self.name, "recurrent weights", recurrent_weights, 1)
        return result

    def reference(
        self, x: Tensor, input_weights: Tensor, recurrent_weights: Tensor, bias: Tensor, hidden: Tensor
    ) -> tuple[Array, Array]:
        state = hidden.data
        results: list[Array] = []
        for element in sequence.steps_first(x.data, self.time_major):
            own = hybrid.product(element, input_weights, asymmetric=self.asymmetric)
            recurrent = hybrid.product(state, recurrent_weights, asymmetric=self.asymmetric)
            state = ACTIVATIONS[self.activation]((bias.data + own) + recurrent).astype(np.float32)
            results.append(state)
        return sequence.restore(np.stack(results), self.time_major), state

    def macs(
        self,
        x: TensorType,
        input_weights: TensorType,
        recurrent_weights: TensorType,
        _bias: TensorType,
        _hidden: TensorType,
    ) -> int:
        return sequence.products(x, input_weights, recurrent_weights)
