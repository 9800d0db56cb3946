"""`microfold.quantize`: the results and errors of the command, for arrays and paths."""

from __future__ import annotations

import inspect
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import microfold
from microfold.api.quantization import SchemeName
from microfold.api.results import QuantizationResult
from microfold.cli.quantize import quantize as command
from microfold.errors import InputError
from microfold.ir.types import Array
from microfold.quantization.build import Verified
from microfold.quantization.engine import PACKAGE
from microfold.quantization.schemes import SCHEMES
from microfold.quantization.session import QuantizationSettings
from tests.codegen import graphs
from tests.command_line import succeed
from tests.needs import need_modules
from tests.quantization.results import LAYERED, quantisation
from tests.quantization.test_quantize import CNN


@pytest.fixture
def samples() -> Array:
    return np.random.default_rng(2).uniform(0, 1, (24, 8, 8, 1)).astype(np.float32)


def test_options_and_defaults_are_those_of_the_command() -> None:
    ours = {name: p.default for name, p in inspect.signature(microfold.quantize).parameters.items()}
    theirs = {name: p.default for name, p in inspect.signature(command).parameters.items()}
    assert set(theirs) - set(ours) == {"as_json", "html"}
    assert set(ours) <= set(theirs) and "quantize" in dir(microfold)
    settings = QuantizationSettings(Path())
    for name in ("samples", "held_back", "seed", "scheme"):
        assert ours[name] == theirs[name] == getattr(settings, name, "int8")
    assert SchemeName.__args__ == tuple(SCHEMES)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_arrays_and_paths_give_the_bytes_of_the_command(samples: Array, tmp_path: Path) -> None:
    need_modules(PACKAGE)
    np.save(tmp_path / "x.npy", samples)
    np.save(tmp_path / "y.npy", np.arange(24) % 10)
    common = (CNN, "--data", tmp_path / "x.npy", "--samples", 10, "--labels", tmp_path / "y.npy")
    succeed("quantize", *common, "-o", tmp_path / "command.tflite")
    file = io.BytesIO(CNN.read_bytes())
    file.name = str(CNN)
    result = microfold.quantize(file, samples, tmp_path / "x.tflite", samples=10, labels=np.arange(24) % 10)
    by_path = microfold.quantize(str(CNN), tmp_path / "x.npy", samples=10, labels=tmp_path / "y.npy")
    expected = (tmp_path / "command.tflite").read_bytes()
    assert result.model == by_path.model == (tmp_path / "x.tflite").read_bytes() == expected
    assert result.outputs == by_path.outputs and result.outputs[0].accuracy is not None
    assert result.exact and not result.problem and "most is lost in layer" in result.advice[0]
    assert microfold.verify(result.model, runs=2).exact


def test_results_are_short_texts_and_tables(tmp_path: Path) -> None:
    result = QuantizationResult(quantisation(), LAYERED)
    text = "net.tflite in int8: 1,000 bytes, SNR 20.0 dB, 75.0 % same answers, C code exact"
    assert repr(result) == f"<QuantizationResult {text}>"
    shown = result._repr_html_()
    assert text in shown and "<td>0.5</td>" in shown and shown.endswith("<p>advice &lt;b&gt;</p>")
    assert result.layers == LAYERED.layers and result.problem == ""
    assert result.save(tmp_path / "net.tflite").read_bytes() == LAYERED.data
    with pytest.raises(InputError, match="cannot write"):
        result.save(tmp_path / "net.tflite" / "below")


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (7, {}, "data must be a path, an array .* got int: convert the samples with numpy.asarray"),
        ([], {}, "got list"),
        (np.ma.masked_array(np.zeros(3)), {}, "got MaskedArray"),
        ([[0.5]], {}, "got list: convert"),
        ([np.zeros(3), np.zeros(3)], {}, "must be an array for each of .*; got array 0, array 1"),
        ({"a": np.zeros(3), "b": np.zeros(3)}, {}, "the array does not fit the model:\n.* got a, b"),
        (np.zeros((3, 9, 9, 1)), {}, r"the shape must be \[N,1,8,8,1\]; it is \[3, 9, 9, 1\]"),
        (np.zeros((3, 8, 8, 1), "U1"), {}, "the type must be a number"),
        (
            None,
            {"scheme": "int3", "layer": "0=int8", "samples": 0, "held_back": True, "seed": -1},
            "^scheme must be int8, .*; got 'int3'; layer .*; samples .* at least 1; got 0; held_back .*seed",
        ),
        (None, {"mean": "a"}, "mean must be a finite number, or one for each channel; got 'a'"),
        (None, {"mean": 0, "std": [1, float("nan")]}, "std must be a finite number"),
        (None, {"mean": 1}, "--mean and --std belong together; --std is missing"),
        (None, {"labels": [1]}, r"--labels must be 24 integers.*; the argument has int64\[1\]"),
        (None, {"labels": [[1], [2, 3]]}, "labels must be a path, or the class of each sample"),
        (None, {"layer": ["99=float"]}, "'99=float': a layer must be a number from 0 to"),
        (None, {"output": CNN}, "--output must not be the float model"),
    ],
)
def test_wrong_data_and_options_are_refused(
    data: Any, options: dict[str, Any], message: str, samples: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_modules("ai_edge_litert")
    monkeypatch.setattr("microfold.quantization.session.check_installed", lambda: None)
    with pytest.raises(InputError, match=message):
        microfold.quantize(CNN, samples if data is None else data, **options)


def test_only_tflite_files_are_quantised(samples: Array, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"requires a \.tflite file; the model is an imported graph"):
        microfold.quantize(graphs.chain(), samples)
    (tmp_path / "x.mf").write_text("graph @x() -> () {}")
    with pytest.raises(InputError, match=r"requires a \.tflite file; .*x\.mf is a graph in text form"):
        microfold.quantize(tmp_path / "x.mf", samples)


def test_a_model_that_is_not_compared_has_no_exactness() -> None:
    assert QuantizationResult(quantisation(), LAYERED).exact
    changed = quantisation(Verified(None, 0, "no compiler")).results[0]
    assert QuantizationResult(quantisation(), changed).exact is None
