"""Start of ai-edge-quantizer in a process of its own.

The process keeps its messages and crashes away from the command, and can be ended at any time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from microfold.errors import InputError, ToolError
from microfold.ir.types import Array
from microfold.quantization.normalise import Normalised
from microfold.quantization.schemes import Recipe
from microfold.support.scratch import scratch_folder

PACKAGE = "ai_edge_quantizer"
# Files in the folder that both processes share.
MODEL, JOB, SAMPLES, RESULT, ERROR = (
    "model.tflite",
    "job.json",
    "samples_{}.npy",
    "result.tflite",
    "error.txt",
)

Progress = Callable[[int, int], None]


def check_installed() -> None:
    """Raise `InputError` if ai-edge-quantizer is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise InputError(
            "quantize requires ai-edge-quantizer, which is not installed: pip install 'microfold[quantize]' "
            "(some 300 MB)"
        )


def quantize(
    model: Normalised, recipe: Recipe, samples: Sequence[Array], progress: Progress = lambda _, __: None
) -> bytes:
    """Return the quantised model. Equal arguments lead to equal bytes.

    Args:
        samples: calibration data, an array [samples, shape of the input] for each input.
        progress: is called with the finished and all steps.

    Raises:
        InputError: ai-edge-quantizer is not installed.
        ToolError: it fails.
    """
    check_installed()
    with scratch_folder() as folder:
        (folder / MODEL).write_bytes(model.data)
        job = {"recipe": recipe, "signature": model.signature, "inputs": model.inputs}
        (folder / JOB).write_text(json.dumps(job), encoding="utf-8")
        for index, array in enumerate(samples):
            np.save(folder / SAMPLES.format(index), array)
        status = _run(folder, progress, 1 + (len(samples[0]) if samples else 0))
        if status or not (folder / RESULT).is_file():
            reason = f"its process ended with code {status}"
            with contextlib.suppress(OSError):
                reason = (folder / ERROR).read_text(encoding="utf-8")
            raise ToolError(
                f"ai-edge-quantizer must quantise the model; it failed: {reason}; "
                "try another --scheme, or keep layers in float with --layer N=float"
            )
        return (folder / RESULT).read_bytes()


def _run(folder: Path, progress: Progress, steps: int) -> int:
    """Run the process, which prints a line for each finished step, and return its exit code."""
    command = [sys.executable, "-m", "microfold.quantization.worker", str(folder)]
    progress(0, steps)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError as error:
        raise ToolError(f"{sys.executable} cannot be started: {error}") from None
    with process:
        try:
            assert process.stdout is not None
            for done, _ in enumerate(process.stdout, 1):
                progress(min(done, steps), steps)
            return process.wait()
        except BaseException:
            process.kill()
            raise
