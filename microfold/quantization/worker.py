"""Process of `engine`: ``python -m microfold.quantization.worker FOLDER`` calls ai-edge-quantizer once.

It prints a line for each calibrated sample, and one at the end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from microfold.quantization.engine import ERROR, JOB, MODEL, RESULT, SAMPLES

# ai-edge-quantizer logs its last recipe, its sizes and times beyond this number of characters.
_LONGEST_REASON = 500


class _Samples:
    """Calibration data, which are counted once before they are used."""

    def __init__(self, names: Sequence[str], arrays: Sequence[Any], step: Callable[[], None]):
        self.names, self.arrays, self.step = names, arrays, step
        self.counted = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(len(self.arrays[0])):
            yield {name: array[number] for name, array in zip(self.names, self.arrays, strict=True)}
            if self.counted:
                self.step()
        self.counted = True


def run(folder: Path, step: Callable[[], None]) -> None:
    """Quantise the model in a folder, and write the result there."""
    from ai_edge_quantizer import calibrator, quantizer  # type: ignore[reportMissingImports]
    from ai_edge_quantizer.utils import qsv_utils  # type: ignore[reportMissingImports]

    job = json.loads((folder / JOB).read_text(encoding="utf-8"))
    data = bytearray((folder / MODEL).read_bytes())
    engine: Any = quantizer.Quantizer(data, job["recipe"])
    found: Any = None
    if engine.need_calibration:
        arrays = [np.load(folder / SAMPLES.format(index)) for index in range(len(job["inputs"]))]
        # Ranges are minima and maxima over all samples. The default, a moving average, depends on the order
        # of the samples and cuts off values that are known. One thread, so that sums have a fixed order.
        calibration: Any = calibrator.Calibrator(
            bytes(data), num_threads=1, qsv_update_func=qsv_utils.min_max_update
        )
        samples = {job["signature"]: _Samples(job["inputs"], arrays, step)}
        recipes: Any = engine._recipe_manager
        calibration.calibrate(samples, recipes)
        found = calibration.get_model_qsvs()
    result: Any = engine.quantize(found, enable_progress_bar=False, enable_progress_report=False)
    (folder / RESULT).write_bytes(bytes(result.quantized_model))
    step()


def main() -> int:
    """Quantise the model in the folder that the command line names; return the exit status."""
    folder = Path(sys.argv[1])
    # Libraries print to the standard output, too.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        run(folder, lambda: print("done", file=lines, flush=True))
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON]
        (folder / ERROR).write_text(reason, encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
