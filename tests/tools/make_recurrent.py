"""Writes `tests/models/made/recurrent`: small models of recurrent operators.

Run from the root of the repository: ``python -m tests.tools.make_recurrent``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.frontend import models
from tests.recurrent_models import (
    Parts,
    Sequence,
    bidirectional_lstm,
    bidirectional_rnn,
    float_lstm,
    float_rnn,
    integer_lstm,
    lstm_8x8_16,
    single_lstm,
    single_rnn,
)
from tests.tflite_writer import Writer

FOLDER = models.MADE / "recurrent"
BATCH_MAJOR = Sequence(batch=2, steps=6, inputs=9, units=7)
TIME_MAJOR = Sequence(batch=1, steps=8, inputs=6, units=10, time_major=True)
EVERY_PART = Parts(coupled=True, peephole=True, projection=5, norm=True, clips=(1.0, 0.8))

Make = Callable[[Writer, np.random.Generator], None]
MODELS: dict[str, Make] = {
    "lstm_int8": lambda w, rng: integer_lstm(w, rng, BATCH_MAJOR),
    "lstm_clip_int8": lambda w, rng: integer_lstm(w, rng, TIME_MAJOR, clip=1.0, cell_scale=2.0**-13),
    "lstm_int16x8": lambda w, rng: integer_lstm(w, rng, BATCH_MAJOR, "i2"),
    "lstm_f32": lambda w, rng: float_lstm(w, rng, TIME_MAJOR),
    "lstm_parts_f32": lambda w, rng: float_lstm(w, rng, BATCH_MAJOR, EVERY_PART),
    "lstm_step_f32": lambda w, rng: single_lstm(w, rng, BATCH_MAJOR),
    "lstm_bidirectional_f32": lambda w, rng: bidirectional_lstm(w, rng, TIME_MAJOR, merged=True),
    "rnn_f32": lambda w, rng: float_rnn(w, rng, BATCH_MAJOR, "RELU6"),
    "rnn_step_f32": lambda w, rng: single_rnn(w, rng, BATCH_MAJOR),
    "rnn_bidirectional_f32": lambda w, rng: bidirectional_rnn(w, rng, BATCH_MAJOR, merged=False),
    "lstm_coupled_int8": lambda w, rng: lstm_8x8_16(w, rng, TIME_MAJOR, Parts(coupled=True)),
    "lstm_parts_int8": lambda w, rng: lstm_8x8_16(w, rng, BATCH_MAJOR, EVERY_PART),
    "lstm_step_int8": lambda w, rng: lstm_8x8_16(w, rng, BATCH_MAJOR, Parts(), single=True),
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for seed, (name, make) in enumerate(MODELS.items()):
        writer = Writer()
        make(writer, np.random.default_rng(seed))
        (FOLDER / f"{name}.tflite").write_bytes(writer.pack())


if __name__ == "__main__":
    main()
