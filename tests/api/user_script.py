"""Script of a user, which type checkers must accept as it is."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

import microfold
from microfold.errors import MicrofoldError


def compile_and_run(model: Path) -> float:
    """Compile a model for this machine, and run it on real numbers and on stored values."""
    session = microfold.compile(model, optimize="speed", opt_level=2)
    (port,) = session.inputs
    real = np.zeros(port.shape, np.float32)
    scores = session(real)
    (stored,) = session.run(port.quantize(real))
    return float(scores.max() - session.outputs[0].dequantize(stored).max())


def build_for_a_core(model: Path, folder: Path) -> int:
    """Compile a model for a core, and write its files."""
    core = microfold.load_target("cortex-m4")
    result = microfold.build(model.read_bytes(), core, folder, name="net", ram=64 * 1024, io="caller")
    print(result.program.arena.size, sorted(result.files), result.report.macs)
    with open(model, "rb") as file:
        page = microfold.report(file, core, place=["conv2d=.fast"])
    page.write(folder / "report.html")
    return result.program.macs


def quantize(model: Path, samples: np.ndarray[Any, np.dtype[np.float32]], file: Path) -> float:
    """Quantise a float model, and return its size and the share of equal answers."""
    result = microfold.quantize(
        model, samples, scheme="int16x8", layer=["0=int8"], labels=[1, 2], mean=0.5, std=2
    )
    result.save(file)
    print(result.advice, [layer.snr for layer in result.layers], len(result.model), result.exact)
    by_name = microfold.quantize(model, {"x": samples}, file, target=microfold.load_target("cortex-m4"))
    return by_name.outputs[0].agreement or 0.0


def check(model: Path) -> bool:
    """Compare the C with the reference."""
    try:
        return microfold.verify(io.BytesIO(model.read_bytes()), "cortex-m4", runs=2).exact
    except MicrofoldError as error:
        print(error)
        return False
