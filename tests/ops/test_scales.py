"""Integer operators under many scales against the oracle's wheel: how fixed-point parameters are made."""

from __future__ import annotations

import numpy as np
import pytest
import tflite

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import trace_model
from tests import oracle
from tests.frontend import models
from tests.needs import need_modules

# Operators whose output scale the reference fixes: only inputs are rescaled.
FIXED_OUTPUT = [
    "log_softmax",
    "l2norm",
    "logistic",
    "tanh",
    "softmax",
    "greater",
    "equal",
    "less_eq",
    "rsqrt",
]
FREE = [
    "abs",
    "leaky_relu",
    "relu",
    "hard_swish",
    "prelu",
    "add",
    "add_bcast",
    "sub",
    "mul",
    "mul_const",
    "sqdiff",
    "mean_hw",
    "mean_all",
    "mean_c",
    "sum_hw",
    "fc",
    "fc_nobias",
    "fc_relu",
    "conv",
    "dw",
    "tconv",
    "bmm_adjy",
    "layernorm",
    "quant_dq",
]
SEEDS = range(12)


def rescaled(data: bytes, seed: int, inputs_only: bool) -> bytes:
    """The model with every per-tensor scale (or those of the inputs) multiplied by a random factor."""
    rng = np.random.default_rng(seed)
    patched = bytearray(data)
    graph = tflite.Model.GetRootAsModel(patched, 0).Subgraphs(0)
    chosen = graph.InputsAsNumpy() if inputs_only else range(graph.TensorsLength())
    for index in chosen:
        quantization = graph.Tensors(int(index)).Quantization()
        if quantization is None or quantization.ScaleLength() != 1:
            continue
        table = quantization._tab
        position = table.Vector(table.Offset(8))
        scale = np.float32(quantization.Scale(0) * np.exp(rng.uniform(-0.5, 0.5)))
        patched[position : position + 4] = scale.tobytes()
    return bytes(patched)


@pytest.mark.parametrize("suffix", ["int8", "int16x8"])
@pytest.mark.parametrize("name", [*FIXED_OUTPUT, *FREE])
def test_scales(name: str, suffix: str) -> None:
    need_modules("tflite_micro")
    path = models.MADE / "ops" / f"{name}_{suffix}.tflite"
    if not path.exists():
        pytest.skip(f"there is no {path.name}")
    compared = 0
    for seed in SEEDS:
        data = rescaled(path.read_bytes(), seed, inputs_only=name in FIXED_OUTPUT)
        try:
            traced = trace_model(data)
        except UnsupportedModelError:
            continue
        calls = [oracle.inputs_of(traced, 2 * seed)]
        try:
            expected = oracle.tflm(data, calls, oracle.compared_tensors(data, traced))
        except oracle.OracleError:
            continue
        faults = oracle.differences(traced, calls, expected)
        assert not faults, f"seed {seed}: {faults[0]}"
        compared += 1
    if not compared:
        pytest.skip("the oracle does not run it")
