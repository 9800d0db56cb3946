"""Imported models against the oracles' wheels, operator by operator, several calls each."""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import trace_model
from tests import oracle
from tests.frontend import models
from tests.needs import need_modules
from tests.sampling import quick

CALLS = 4
WRONG_ORACLE = (
    # LiteRT reads int4 filters of int16 depthwise convolutions as if they were int8,
    "dscnn_bn_aeq_w4a16",
    # and int2 filters of hybrid convolutions as if they were float32.
    *("cnn_aeq_dynwi2c", "dscnn_bn_aeq_dynwi2c", "preact_bn_aeq_dynwi2c"),
)


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


@pytest.mark.parametrize("name", quick(models.made(), 8))
def test_bundled_model(name: str) -> None:
    if name in WRONG_ORACLE:
        pytest.skip("the oracle that runs it is wrong")
    check(models.MADE / f"{name}.tflite")


@pytest.mark.parametrize("path", models.elsewhere(), ids=lambda path: path.stem)
def test_model_from_elsewhere(path: Path) -> None:
    check(path)
