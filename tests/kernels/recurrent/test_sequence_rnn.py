"""Simple recurrent layers, and layers of both directions: C against the reference, whose states go on."""

from __future__ import annotations

import numpy as np

from microfold.frontend.tflite import import_model
from tests.kernels.portable import check
from tests.recurrent_models import (
    Parts,
    Sequence,
    bidirectional_lstm,
    bidirectional_rnn,
    float_rnn,
    single_lstm,
    single_rnn,
)
from tests.tflite_writer import Writer


def test_on_the_host() -> None:
    w, rng = Writer(), np.random.default_rng(3)
    for k, activation in enumerate(("NONE", "RELU", "RELU6", "RELU_N1_TO_1", "TANH")):
        size = Sequence(batch=1 + k % 2, steps=1 + k, inputs=3 + k, units=2 * k + 1, time_major=k > 2)
        float_rnn(w, rng, size, activation)
    size = Sequence(batch=2, units=5)
    single_rnn(w, rng, size, "RELU6")
    single_lstm(w, rng, size, Parts(peephole=True))
    for merged in (False, True):
        bidirectional_rnn(w, rng, size, merged=merged)
        bidirectional_lstm(w, rng, size, Parts(projection=3), merged=merged)
    check(import_model(w.pack()))
