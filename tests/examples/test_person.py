"""The camera of examples/person: the scaler equals its twin in numpy, figures are those of the README."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run
from tests.examples.test_examples import ARM_TOOLS, EXAMPLES, HOST_TOOLS, expected_output, make
from tests.needs import need_modules, need_tools

PERSON = EXAMPLES / "person"
README = (PERSON / "README.md").read_text(encoding="utf-8")
OTHERS = ("tflm/person_detect", "mlperf_tiny/vww_int8")

# Beside scaler.c: a function for ctypes that scales a whole frame.
WHOLE = """
#include "scaler.h"
uint32_t scale_frame(const uint8_t *frame, uint32_t width, uint32_t height, uint32_t side, uint32_t channels,
                     uint32_t *words, uint8_t *picture);
uint32_t scale_frame(const uint8_t *frame, uint32_t width, uint32_t height, uint32_t side, uint32_t channels,
                     uint32_t *words, uint8_t *picture)
{
    scaler scale;
    uint32_t done = 0;

    scaler_init(&scale, width, height, side, channels, words);
    scaler_begin(&scale, picture);
    for (uint32_t y = 0; y < height; y++) {
        const uint32_t now = scaler_push(&scale, frame + 2u * width * y);

        if (now < done || now > done + 1u) {
            return 0; /* at most one row of the picture is complete with a row of the frame */
        }
        done = now;
    }
    return done;
}
"""
Scale = Callable[[np.ndarray, int, int], np.ndarray]


def module(name: str) -> ModuleType:
    """A script of the example."""
    spec = importlib.util.spec_from_file_location(name, PERSON / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def scale_in_c(tmp_path_factory: pytest.TempPathFactory) -> Scale:
    """`scale` of picture.py, by scaler.c."""
    need_tools("cc")
    folder = tmp_path_factory.mktemp("scaler")
    (folder / "whole.c").write_text(WHOLE, encoding="utf-8")
    sources = (folder / "whole.c", PERSON / "scaler.c")
    run(["cc", *STRICT, "-O1", "-shared", "-fPIC", f"-I{PERSON}", *sources, "-o", folder / "scaler.so"])
    scale_frame = ctypes.CDLL(str(folder / "scaler.so")).scale_frame

    def scale(frame: np.ndarray, side: int, channels: int) -> np.ndarray:
        height, width = frame.shape[:2]
        words = np.full(2 * side * channels, 0xDEADBEEF, np.uint32)
        picture = np.zeros((side, side, channels), np.uint8)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (frame, words, picture)]
        assert scale_frame(pointers[0], width, height, side, channels, *pointers[1:]) == side
        return picture

    return scale


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("width", "height", "side"),
    [(160, 120, 96), (96, 96, 96), (97, 130, 96), (121, 100, 48), (320, 240, 96), (7, 9, 1)],
)
def test_the_scaler_equals_its_twin(
    width: int, height: int, side: int, channels: int, scale_in_c: Scale
) -> None:
    twin = module("picture").scale
    random = np.random.default_rng(width * side + channels)
    frame = random.integers(0, 256, (height, width, 2)).astype(np.uint8)
    assert np.array_equal(scale_in_c(frame, side, channels), twin(frame, side, channels))


def test_black_and_white_stay_what_they_are(scale_in_c: Scale) -> None:
    """White also at the largest size, where the sums are near 2^32."""
    for value, size, channels in ((0, 150, 1), (0, 150, 3), (255, 150, 3), (255, 4096, 1)):
        frame = np.full((size, size, 2), value, np.uint8)
        assert (scale_in_c(frame, 2, channels) == value).all()


def test_the_frames_are_those_that_the_script_renders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Up to a step of a colour here and there: another processor may round differently."""
    monkeypatch.syspath_prepend(str(PERSON))
    script = module("make_frames")
    monkeypatch.setattr(script, "HERE", tmp_path)
    script.main()
    picture = module("picture")
    there = picture.load_frames()
    made = np.fromfile(tmp_path / "frames.rgb565", np.uint8).reshape(there.shape)
    gaps = np.abs(picture.channels_of(made, 3) - picture.channels_of(there, 3))
    assert gaps.max() <= 9 and (gaps > 0).mean() < 0.001


@pytest.mark.parametrize("runtime", ["litert", "tflite-micro"])
def test_the_original_model_answers_what_the_firmware_compares_with(runtime: str) -> None:
    need_modules({"litert": "ai_edge_litert", "tflite-micro": "tflite_micro"}[runtime])
    command = [sys.executable, "evaluate.py", "--runtime", runtime]
    output = subprocess.check_output(command, cwd=PERSON, text=True)
    assert output.splitlines()[-1] == "equal to expected.npy: 12 of 12 values"


@pytest.mark.slow
def test_on_this_computer(tmp_path: Path) -> None:
    assert make("person", "host", tmp_path, HOST_TOOLS).endswith(expected_output("person", "frame"))


@pytest.mark.slow
def test_on_a_simulated_core(tmp_path: Path) -> None:
    """The same output; instructions and bytes are those of the README, up to what compilers differ in."""
    expected = expected_output("person", "frame")
    assert make("person", "run", tmp_path, ARM_TOOLS).endswith(expected)
    *head, counted = make("person", "count", tmp_path, ARM_TOOLS).splitlines()
    assert "\n".join(head).endswith(expected.rstrip("\n"))
    for number, figure in zip(re.findall(r"\d+", counted), figures("instructions"), strict=True):
        assert int(number) == pytest.approx(figure, rel=0.05)
    *_, whole = make("person", "size", tmp_path, ARM_TOOLS).splitlines()
    text, data, bss = map(int, whole.split()[:3])
    (flash,), (ram,) = figures("flash of the firmware"), figures("RAM of the firmware")
    assert text + data == pytest.approx(flash, rel=0.05)
    assert data + bss == pytest.approx(ram, rel=0.02)


def figures(row: str) -> list[int]:
    """The first numbers of the rows of the README's table whose names begin so."""
    cells = re.findall(rf"^\| {row}[^|]*\| ([\d,]+)", README, re.M)
    return [int(cell.replace(",", "")) for cell in cells]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OTHERS)
def test_networks_of_other_people(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Path(os.environ.get("MICROFOLD_MODELS", "")) / f"{name}.tflite"
    if "MICROFOLD_MODELS" not in os.environ or not model.is_file():
        pytest.skip(f"MICROFOLD_MODELS has no {name}.tflite")
    monkeypatch.setenv("MODEL", str(model))
    outputs = [
        make("person", goal, tmp_path, tools) for goal, tools in (("host", HOST_TOOLS), ("run", ARM_TOOLS))
    ]
    on_host, on_core = (output[output.index("frame  person") :] for output in outputs)
    assert on_host == on_core and on_host.endswith("outputs equal bit for bit: 6 of 6\n")
