"""Writes `tests/models/made/signal`: small models of signal operators.

Run from the root of the repository: ``python -m tests.tools.make_signal``.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.frontend import models
from tests.signal_models import delay, front_end, round_trip
from tests.tflite_writer import Writer

FOLDER = models.MADE / "signal"

MODELS: dict[str, Callable[[Writer], None]] = {
    "front_end_int8": lambda w: front_end(w, 160, 256, 12, 3),
    "round_trip_int16": lambda w: round_trip(w, "i2", 3, 60),
    "round_trip_int32": lambda w: round_trip(w, "i4", 2, 80),
    "round_trip_f32": lambda w: round_trip(w, "f4", 2, 96),
    "delay_int16": lambda w: delay(w, 2, 16, 21),
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, make in MODELS.items():
        writer = Writer()
        make(writer)
        (FOLDER / f"{name}.tflite").write_bytes(writer.pack())


if __name__ == "__main__":
    main()
