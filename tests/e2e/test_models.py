"""Whole models: every tensor of the generated C against the reference, on the host and on simulated cores.

The bundled models are in `tests/models/made`. Other people's are tested when a folder of them is named by
MICROFOLD_MODELS; `docs/models.md` says where they come from.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_file
from microfold.errors import UnsupportedModelError
from microfold.options import Options
from microfold.verification.verify import input_sets, verify
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled, sampled_rows

MADE = Path(__file__).resolve().parents[1] / "models" / "made"
ELSEWHERE = os.environ.get("MICROFOLD_MODELS", "")
# Cortex-M33 runs the code of M7.
CORES = ("cortex-m3", "cortex-m4", "cortex-m7", "cortex-m55")

# What must compile, of the models in MICROFOLD_MODELS.
REQUIRED = (
    "mlperf_tiny/ad_int8",
    "mlperf_tiny/ic_int8",
    "mlperf_tiny/kws_int8",
    "mlperf_tiny/sww_int8",
    "mlperf_tiny/vww_int8",
    "mlperf_tiny/ad_float32",
    "mlperf_tiny/ic_float32",
    "mlperf_tiny/vww_float32",
    "tflm/hello_world_int8",
    "tflm/hello_world_float",
    "tflm/micro_speech_quantized",
    "tflm/person_detect",
    "tinymaix/cifar10_q",
    "tinymaix/mnist_resnet_q",
    "tinymaix/mnist_valid_q",
    "openmv/fomo_face_detection",
)
# The same of the bundled ones.
BUNDLED = (
    "cnn_int8",
    "cnn_int8_pertensor",
    "cnn_int8_floatio",
    "cnn_f32",
    "dscnn_bn_int8",
    "dscnn_bn_f32",
    "tcn1d_int8",
)


def elsewhere(name: str) -> Path:
    path = Path(ELSEWHERE) / f"{name}.tflite"
    if not ELSEWHERE or not path.is_file():
        pytest.skip(f"MICROFOLD_MODELS has no {name}.tflite")
    return path


def check(path: Path, core: str, runs: int = 8, options: Options | None = None) -> None:
    if core != "host":
        need_tools(*CROSS_TOOLS)
    program = compile_file(path, target.load(core), options)
    result = verify(program, input_sets([buffer.type for buffer in program.inputs], runs))
    assert result.exact, result.first_difference


@pytest.mark.usefixtures("optimized_host_code")
@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_on_the_host(name: str) -> None:
    check(MADE / f"{name}.tflite", "host")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "core"), sampled_rows(itertools.product(BUNDLED, CORES), 9))
def test_bundled_on_a_simulated_core(name: str, core: str) -> None:
    check(MADE / f"{name}.tflite", core)


@pytest.mark.usefixtures("optimized_host_code")
@pytest.mark.parametrize("name", REQUIRED)
def test_real_models_on_the_host(name: str) -> None:
    check(elsewhere(name), "host")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "core"),
    sampled_rows(
        (
            (name, core)
            for name in REQUIRED
            for core in CORES
            if core != "cortex-m7" or name.startswith("mlperf_tiny")
            # For minutes, in software.
            if core != "cortex-m3" or not name.endswith(("ic_float32", "vww_float32"))
        ),
        3,
    ),
)
def test_real_models_on_a_simulated_core(name: str, core: str) -> None:
    check(elsewhere(name), core, runs=8 if "float" not in name else 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("core", "optimize"), sampled_rows(itertools.product(["cortex-m4", "cortex-m55"], ["size", "speed"]), 3)
)
def test_other_optimisation_goals(core: str, optimize: str) -> None:
    check(MADE / "dscnn_bn_int8.tflite", core, options=Options(optimize=optimize))


@pytest.mark.slow
@pytest.mark.parametrize("path", sampled(sorted(MADE.rglob("*.tflite"))[::2], 10), ids=lambda p: p.stem)
def test_bundled_models_are_exact_or_refused(path: Path) -> None:
    """Whatever compiles is exact; whatever does not says why."""
    try:
        check(path, "host", runs=4)
    except UnsupportedModelError as error:
        pytest.skip(f"refused: {error.problems[0]}")
