"""Writes `tests/goldens`: what the pinned oracle gives for the repository's models.

Run from the root of the repository, with the `oracle` extra installed:
``python -m tests.tools.make_goldens``.
Models that no oracle runs, or that the one that decides runs only in part, get none; the command lists them.
"""

from __future__ import annotations

import zlib

import numpy as np

from microfold.errors import MicrofoldError
from microfold.frontend.tflite import ImportTrace, trace_model
from tests import oracle
from tests.frontend import models

CALLS = 4


def checksums(tensors: oracle.Tensors, indices: list[int]) -> np.ndarray:
    """CRC-32 of each integer tensor; 0 for floating point, which is compared with a tolerance."""
    return np.array(
        [
            zlib.crc32(np.ascontiguousarray(tensors[i]).tobytes()) if tensors[i].dtype.kind in "iub" else 0
            for i in indices
        ],
        np.uint32,
    )


def golden(data: bytes, traced: ImportTrace) -> dict[str, np.ndarray] | None:
    """Outputs of the model and checksums of its integer tensors, call by call."""
    calls = [oracle.inputs_of(traced, seed) for seed in range(CALLS)]
    wanted = oracle.compared_tensors(data, traced)
    name, faults = oracle.judge(data, traced, calls)
    if faults or not name:
        return None
    try:
        expected = oracle.tflm(data, calls, wanted) if name == "tflm" else oracle.litert(data, calls, wanted)
    except oracle.OracleError:
        return None
    if name == "litert" and oracle.differences(traced, calls, expected):
        return None  # equal up to where the other oracle decides: no use as a whole
    wanted = [index for index in wanted if all(index in tensors for tensors in expected)]
    indices = {value: index for index, value in traced.values.items()}
    outputs = [indices[value] for value in traced.graph.outputs if indices.get(value) in wanted]
    arrays: dict[str, np.ndarray] = {"oracle": np.array(name), "tensors": np.array(wanted, np.int32)}
    for call, tensors in enumerate(expected):
        arrays[f"crc_{call}"] = checksums(tensors, wanted)
        for index in outputs:
            if tensors[index].dtype.kind == "f":
                arrays[f"output_{call}_{index}"] = tensors[index]
    return arrays


def main() -> None:
    models.GOLDENS.mkdir(exist_ok=True)
    for name in models.made():
        data = (models.MADE / f"{name}.tflite").read_bytes()
        try:
            arrays = golden(data, trace_model(data))
        except MicrofoldError as error:
            print(f"{name}: refused ({str(error).splitlines()[-1].strip()})")
            continue
        if arrays is None:
            print(f"{name}: no oracle runs all of it")
            continue
        path = models.GOLDENS / f"{name}.npz"
        path.parent.mkdir(exist_ok=True)
        np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main()
