"""Simple recurrent layer over a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.recurrent import sequence

ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "relu_n1_to_1": lambda x: np.clip(x, np.float32(-1), np.float32(1)),
    "relu6": lambda x: np.clip(x, np.float32(0), np.float32(6)),
    "tanh": np.tanh,
}


@register
class SequenceRnn(Op, frozen=True):
    """``hidden = activation(bias + input_weights @ x + recurrent_weights @ hidden)`` in each step, float32.

    Operands are ``x [N, T, I]``, or [T, N, I] if `time_major`; ``input_weights [U, I]``, ``recurrent_weights
    [U, U]``, ``bias [U]`` and ``hidden [N, U]``. Results are hidden of all steps, in the layout of x, and the
    state for the next call.
    """

    name: ClassVar[str] = "sequence_rnn"

    time_major: bool
    activation: str

    def infer(
        self,
        x: TensorType,
        input_weights: TensorType,
        recurrent_weights: TensorType,
        bias: TensorType,
        hidden: TensorType,
    ) -> tuple[TensorType, TensorType]:
        require(
            self.activation in ACTIVATIONS,
            f"sequence_rnn: the activation must be {', '.join(ACTIVATIONS)}; it is {self.activation}",
        )
        layout = sequence.check_input("sequence_rnn", x, self.time_major)
        units = bias.size
        require(
            bias.shape == (units,)
            and input_weights.shape == (units, layout.inputs)
            and recurrent_weights.shape == (units, units)
            and hidden.shape == (layout.batch, units),
            f"sequence_rnn: {units} units need input weights [{units}, {layout.inputs}], recurrent weights "
            f"[{units}, {units}] and hidden [{layout.batch}, {units}]; they are {input_weights}, "
            f"{recurrent_weights} and {hidden}",
        )
        dtypes = {type.dtype for type in (x, input_weights, recurrent_weights, bias, hidden)}
        require(
            dtypes == {DType.FLOAT32},
            "sequence_rnn: all operands must be float32; they are "
            + ", ".join(sorted(d.value for d in dtypes)),
        )
        return TensorType(DType.FLOAT32, layout.shape(units)), hidden

    def reference(
        self, x: Tensor, input_weights: Tensor, recurrent_weights: Tensor, bias: Tensor, hidden: Tensor
    ) -> tuple[Array, Array]:
        state = hidden.data
        results: list[Array] = []
        for element in sequence.steps_first(x.data, self.time_major):
            total = bias.data + element @ input_weights.data.T + state @ recurrent_weights.data.T
            state = ACTIVATIONS[self.activation](total).astype(np.float32)
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
