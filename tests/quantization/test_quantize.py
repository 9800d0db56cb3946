"""The command: quantised models are exact, compared and reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from microfold.quantization import engine
from microfold.quantization.engine import PACKAGE
from microfold.quantization.normalise import normalise
from microfold.quantization.schemes import SCHEMES, recipe
from tests.command_line import microfold, refuse, succeed
from tests.needs import need_modules
from tests.quantization.models import dense
from tests.reporting.page.test_page import check

CNN = Path(__file__).resolve().parents[1] / "models" / "made" / "cnn_f32.tflite"
RNG = np.random.default_rng(2)


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", RNG.uniform(0, 1, (24, 8, 8, 1)).astype(np.float32))
    return tmp_path / "x.npy"


@pytest.fixture
def old(tmp_path: Path) -> tuple[Path, Path]:
    """A model of an older converter with its data, whose first bias needs more than 32 bits in int16x8."""
    weights = RNG.normal(size=(3, 4)).astype(np.float32)
    weights[0] *= 1e-5
    (tmp_path / "old.tflite").write_bytes(dense(weights, np.array([1, 0, 0.5], np.float32)))
    np.save(tmp_path / "old.npy", RNG.normal(size=(16, 4)).astype(np.float32))
    return tmp_path / "old.tflite", tmp_path / "old.npy"


def report(*arguments: object) -> Any:
    return json.loads(succeed("quantize", *arguments, "--json"))


def test_without_the_package_the_error_says_how_to_install_it(
    digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda _: None)
    assert "pip install 'microfold[quantize]'" in refuse("quantize", CNN, "--data", digits, "-o", "x.tflite")


@pytest.mark.slow
def test_a_model_is_quantised_and_checked(digits: Path, tmp_path: Path) -> None:
    need_modules(PACKAGE)
    np.save(tmp_path / "y.npy", np.arange(24) % 10)
    common = (CNN, "--data", digits, "--samples", 10, "--held-back", 8, "-t", "cortex-m4")
    found = report(*common, "-o", tmp_path / "one.tflite", "--labels", tmp_path / "y.npy")
    assert (found["samples"], found["calibration"], found["held_back"]) == (24, 10, 8)
    assert 0 <= found["float"]["accuracy"] <= 1
    (scheme,) = found["schemes"]
    assert (scheme["scheme"], scheme["exact"], scheme["problem"]) == ("int8", True, None)
    assert scheme["flash"] < found["float"]["flash"]
    (output,) = scheme["outputs"]
    assert output["snr"] > 20
    assert output["agreement"] >= 0.8
    assert scheme["layers"][0]["operator"] == "CONV_2D"
    assert all(layer["type"] == "int8" for layer in scheme["layers"])
    # Equal options lead to equal bytes; text says where the file is.
    page = tmp_path / "page.html"
    text = succeed("quantize", *common, "-o", tmp_path / "two.tflite", "--html", page)
    assert f"written: {page}" in text and check(page.read_text(encoding="utf-8")).all(
        "table", class_="layers"
    )
    assert "most is lost in layer" in text
    assert (tmp_path / "one.tflite").read_bytes() == (tmp_path / "two.tflite").read_bytes()
    assert json.loads(succeed("verify", tmp_path / "one.tflite", "--json"))["exact"]


@pytest.mark.slow
def test_all_schemes_are_compared(old: tuple[Path, Path]) -> None:
    """The model is of an older converter: its operator codes and signature are completed."""
    need_modules(PACKAGE)
    model, data = old
    found = report(model, "--data", data, "--compare")
    assert len(found["notes"]) == 2
    schemes = {scheme["scheme"]: scheme for scheme in found["schemes"]}
    assert set(schemes) == set(SCHEMES)
    wide = schemes.pop("int16x8")
    assert all(scheme["exact"] for scheme in schemes.values())
    assert schemes["float16"]["outputs"][0]["snr"] > schemes["int8"]["outputs"][0]["snr"]
    # In int16x8, a bias becomes wrong, which no other tool reports, and no kernel can add.
    assert (wide["exact"], wide["layers"][0]["overflowed_biases"]) == (None, 1)
    assert "a bias or a multiplier is too large" in wide["problem"]
    assert "1 of its 3 biases exceed 32 bits" in wide["advice"][1]
    common = (model, "--data", data, "--scheme", "int16x8", "-o", model.with_name("out.tflite"))
    failed = microfold("quantize", *common)
    assert failed.status == 1
    assert "int16x8: old_int16x8 cannot be compiled" in failed.out
    assert report(*common, "--layer", "0=float")["schemes"][0]["outputs"][0]["snr"] > 60


@pytest.mark.slow
def test_progress_moves_and_failures_are_errors(old: tuple[Path, Path]) -> None:
    need_modules(PACKAGE)
    model, data = old
    normalised = normalise(model.read_bytes(), "old")
    steps: list[int] = []
    samples = [np.load(data).reshape(16, 1, 4)]
    made = engine.quantize(
        normalised, recipe(SCHEMES["int8"], {}), samples, lambda done, _: steps.append(done)
    )
    assert made[4:8] == b"TFL3"
    assert steps == [*range(18)]
    with pytest.raises(engine.ToolError, match="ai-edge-quantizer must quantise the model; it failed: "):
        engine.quantize(normalised, [{"regex": ".*"}], samples)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((CNN, "-o", "x.tflite", "--scheme", "int3"), "--scheme must be int8, int16x8"),
        ((CNN, "-o", CNN), "must not be the float model"),
        ((CNN,), "requires --output FILE, or --compare"),
        ((CNN, "-o", "x.tflite", "--mean", "a"), "--mean must be numbers"),
        ((CNN, "-o", "x.tflite", "--layer", "99=float"), "'99=float': a layer must be a number from 0 to"),
        ((CNN.with_name("cnn_int8.tflite"), "-o", "x.tflite"), "requires a model with float32 inputs"),
    ],
)
def test_wrong_options_are_refused(
    arguments: tuple[object, ...], message: str, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_modules("ai_edge_litert")
    monkeypatch.chdir(digits.parent)
    monkeypatch.setattr("microfold.quantization.session.check_installed", lambda: None)
    assert message in refuse("quantize", *arguments, "--data", digits)
    assert not Path("x.tflite").exists()


def test_data_that_do_not_fit_are_refused(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_modules("ai_edge_litert")
    monkeypatch.setattr("microfold.quantization.session.check_installed", lambda: None)
    np.save(digits, np.zeros((3, 9, 9, 1), np.float32))
    result = microfold("quantize", CNN, "--data", digits, "-o", tmp_path / "out.tflite")
    assert result.status == 2
    assert "the shape must be [N,1,8,8,1]; it is [3, 9, 9, 1]" in result.err
    assert not (tmp_path / "out.tflite").exists()
