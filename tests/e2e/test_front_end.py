"""A feature extractor in a file: its C against the reference, over calls that its state ties together."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_file
from microfold.verification.verify import verify
from tests.frontend import models
from tests.needs import CROSS_TOOLS
from tests.sampling import sampled
from tests.tflite_writer import Array

PATH = models.MADE / "signal" / "front_end_int8.tflite"
ELSEWHERE = os.environ.get("MICROFOLD_MODELS", "")
CORES = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m55")


def blocks(samples: int, count: int) -> list[list[Array]]:
    """A tone that rises, in noise of many levels; one after the other, in blocks."""
    rng = np.random.default_rng(0)
    time = np.arange(samples * count)
    tone = 9000 * np.sin(time * time * 1e-5)
    noise = rng.normal(0, 1, time.size) * 10.0 ** rng.uniform(0, 4, count).repeat(samples)
    sound = np.clip(tone + noise, -32768, 32767).astype(np.int16)
    return [[block] for block in sound.reshape(count, 1, samples)]


def check(path: Path, core: str, count: int) -> None:
    program = compile_file(path, target.load(core))
    (x,) = program.inputs
    result = verify(program, blocks(x.type.shape[-1], count))
    assert result.exact, result.differences


def test_on_the_host() -> None:
    check(PATH, "host", 12)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", sampled(CORES))
def test_on_cores(core: str) -> None:
    check(PATH, core, 6)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.skipif(not ELSEWHERE, reason="MICROFOLD_MODELS names no folder of models")
@pytest.mark.parametrize("core", ["host", *CORES])
def test_of_tflm(core: str) -> None:
    check(Path(ELSEWHERE) / "tflm" / "audio_preprocessor_int8.tflite", core, 6)


def test_features_change_with_the_sound() -> None:
    """What is compared above is not one value."""
    from microfold.ir.interpret import Interpreter

    interpreter = Interpreter(compile_file(PATH, target.load("host")).source)
    features = [interpreter.run(*block)[0] for block in blocks(80, 8)]
    assert len(np.unique(features)) > 50
    assert all((before != after).any() for before, after in itertools.pairwise(features))
