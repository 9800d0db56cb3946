"""Imported models against the oracles' wheels, operator by operator, several calls each."""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import trace_model
from tests import oracle
from tests.frontend import models
from tests.needs import need_modules

CALLS = 4
FAST = (
    "cnn_int8", "cnn_f32", "cnn_aeq_w4a8", "dscnn_bn_int8", "dscnn_bn_int16x8", "preact_bn_int8", "nchw_like_int8",
    "tcn1d_int8", "stream_int8", "zoo_f32", "attn_f16", "ops/mean_hw_int8", "ops/relu6_int8", "ops/hard_swish_int8",
    "ops/softmax_int16x8", "ops/tconv_same_int8", "ops/logistic_int16x8", "ops/tanh_int8", "ops/sub_int16x8",
)  # fmt: skip
# LiteRT reads int4 filters of int16 depthwise convolutions as if they were int8.
WRONG_ORACLE = ("dscnn_bn_aeq_w4a16",)


def check(path: Path) -> None:
    need_modules("tflite_micro", "ai_edge_litert")
    data = path.read_bytes()
    try:
        traced = trace_model(data, path.stem, path.name)
    except UnsupportedModelError as error:
        pytest.skip(f"refused: {error.problems[0]}")
    calls = [oracle.inputs_of(traced, seed) for seed in range(CALLS)]
    name, faults = oracle.judge(data, traced, calls)
    if not name and not faults:
        pytest.skip("no oracle can run it")
    assert not faults, f"{path.name} against {name}:\n" + "\n".join(faults[:10])


@pytest.mark.parametrize("name", FAST)
def test_bundled_model(name: str) -> None:
    check(models.MADE / f"{name}.tflite")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in models.made() if name not in FAST])
def test_every_bundled_model(name: str) -> None:
    if name in WRONG_ORACLE:
        pytest.skip("the oracle that runs it is wrong")
    check(models.MADE / f"{name}.tflite")


@pytest.mark.parametrize("path", models.elsewhere(), ids=lambda path: path.stem)
def test_model_from_elsewhere(path: Path) -> None:
    check(path)
