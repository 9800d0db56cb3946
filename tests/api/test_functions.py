"""The functions that `import microfold` offers."""

from __future__ import annotations

import inspect
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import microfold
from microfold.api.options import FURTHER, CodeKeywords, CompileOptions
from microfold.errors import InputError, ModelFormatError
from microfold.frontend.model_source import ModelSource
from microfold.options import ALIGN, BY_ROWS, IO, MEMORY, NUMERICS, OPTIMIZE, WEIGHTS, Options
from microfold.support.json_text import to_json
from tests.codegen import graphs

ROOT = Path(__file__).resolve().parents[2]
CNN = ROOT / "tests" / "models" / "made" / "cnn_int8.tflite"
SMALL = """graph @small(%x: int8[1,4] q(0.1, 3)) -> (%y) {
  %y: int8[2,2] q(0.1, 3) = reshape(%x) {shape=(2, 2)}
}
"""


def test_options_have_the_names_and_values_of_the_compiler() -> None:
    hints = get_type_hints(CodeKeywords)
    assert tuple(hints) == Options.__struct_fields__
    listed = {name: get_args(hint) for name, hint in hints.items() if "Literal" in str(hint)}
    assert listed == {
        "optimize": OPTIMIZE,
        "io": IO,
        "rows": BY_ROWS,
        "align": ALIGN,
        "memory": MEMORY,
        "weights": WEIGHTS,
        "numerics": NUMERICS,
    }
    assert set(CompileOptions.__annotations__) == {*hints, *FURTHER}


@pytest.mark.parametrize("name", ["compile", "build", "verify", "report"])
def test_notebooks_complete_functions_and_options(name: str) -> None:
    assert name in dir(microfold)
    names = set(inspect.signature(getattr(microfold, name)).parameters)
    assert {"model", "target", *CompileOptions.__annotations__} <= names
    assert "options" not in names


def test_importing_is_fast() -> None:
    code = "import sys, microfold; dir(microfold); print('numpy' in sys.modules, len(sys.modules))"
    shown = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    numpy, modules = shown.stdout.split()
    bare = subprocess.run(
        [sys.executable, "-S", "-c", "import sys; print(len(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert numpy == "False" and int(modules) <= int(bare.stdout) + 1


def test_report_stays_a_function() -> None:
    """No package of this name replaces it when it is imported."""
    assert not (ROOT / "microfold" / "report").exists() and not (ROOT / "microfold" / "report.py").exists()
    assert all(callable(getattr(microfold, name)) for name in microfold.__all__ if name != "__version__")


def sources() -> dict[str, ModelSource]:
    data = CNN.read_bytes()
    named = io.BytesIO(data)
    named.name = str(CNN)
    return {"path": CNN, "text": str(CNN), "bytes": data, "view": memoryview(data), "file": named}


@pytest.mark.parametrize("kind", ["path", "text", "bytes", "view", "file"])
def test_models_come_from_paths_bytes_and_files(kind: str) -> None:
    """All of them give the same C; bytes have no name of their own."""
    result = microfold.build(sources()[kind], "cortex-m4", name="cnn_int8")
    expected = microfold.build(CNN, "cortex-m4")
    if kind in ("bytes", "view"):
        assert result.program.origin is not None and result.program.origin.file == "model"
        assert result.files["cnn_int8_weights.c"] != "" and result.files.keys() == expected.files.keys()
        return
    assert result.files == expected.files


def test_graphs_in_text_form_and_in_memory() -> None:
    text = io.BytesIO(SMALL.encode())
    text.name = "small.mf"
    session = microfold.compile(text)
    assert session(np.full((1, 4), 0.5)).tolist() == np.full((2, 2), np.float32(0.5)).tolist()
    assert microfold.verify(graphs.chain(), runs=4).exact


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (io.StringIO("text"), "must give bytes; it gives str: open the file with mode 'rb'"),
        (7, "must be a path, bytes, a file object that is open for reading bytes, or a graph; got int"),
    ],
)
def test_other_things_are_no_models(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        microfold.build(source, "host")


def test_wrong_models_and_options_are_refused() -> None:
    with pytest.raises(ModelFormatError):
        microfold.compile(b"")
    with pytest.raises(InputError, match=r"signature requires a \.tflite file; .* an imported graph"):
        microfold.compile(graphs.chain(), signature="serve")
    with pytest.raises(InputError, match="unknown option speed; known are optimize, flash"):
        microfold.build(CNN, "host", speed=True)  # type: ignore[call-arg]
    wrong: Any = {"ram": "64K", "step": 1, "place": "conv=.fast", "optimize": None}
    with pytest.raises(
        InputError, match=r"^ram must be an integer or None; got '64K'; step .*; place .*; optimize"
    ):
        microfold.build(CNN, "host", **wrong)
    with pytest.raises(InputError, match="runs must be at least 1; got 0"):
        microfold.verify(CNN, runs=0)
    with pytest.raises(InputError, match="inputs must have at least one input set"):
        microfold.verify(CNN, inputs=[])
    with pytest.raises(InputError, match=r"input 0 .* must be int8\[1,8,8,1\]; got float64"):
        microfold.verify(CNN, inputs=[np.zeros((1, 8, 8, 1))])
    with pytest.raises(InputError, match="cannot write"):
        microfold.build(CNN, "host", CNN / "folder")


def test_build_has_the_files_and_the_report(tmp_path: Path) -> None:
    result = microfold.build(CNN, "cortex-m4", tmp_path, optimize="size")
    assert {path.name for path in tmp_path.iterdir()} == set(result.files)
    assert json.loads((tmp_path / "cnn_int8_report.json").read_text()) == json.loads(to_json(result.report))
    assert result.report.options.optimize == "size"
    assert repr(result).startswith("<BuildResult cnn_int8 for cortex-m4: 6 files, RAM ")
    assert "<td>flash: weights</td>" in result._repr_html_()
    program = result.program
    assert repr(program).startswith("<Program cnn_int8 for cortex-m4: 5 layers, arena ")
    assert repr(program.layers[0]).startswith("<Layer 0 ") and "<td>conv2d</td>" in program._repr_html_()
    assert repr(program.graph).startswith("<Graph ")


def test_report_is_a_page(tmp_path: Path) -> None:
    page = microfold.report(CNN, "cortex-m4", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    assert page.html.startswith("<!doctype html>") and page.report.target == "cortex-m4"
    shown = page._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and shown.count("<") == 2
    assert repr(page) == "<ReportPage of cnn_int8 for cortex-m4>"


def test_verify_compares_own_inputs() -> None:
    result = microfold.verify(CNN, inputs=[np.zeros((1, 8, 8, 1), np.int8)] * 3, optimize="speed")
    assert result.exact and result.inputs == 3
    assert repr(result) == f"<Verification: exact, {result.tensors} tensors over 3 input sets>"
    assert "exact" in result._repr_html_()


def test_targets_are_loaded_by_name_and_path() -> None:
    core = microfold.load_target("cortex-m4")
    assert microfold.load_target(ROOT / "targets" / "cortex-m4.toml") == core
    assert repr(core) == "<Target cortex-m4: dsp, fpu, thumb2>" and "arm-none-eabi-gcc" in core._repr_html_()
    assert microfold.build(CNN, core).program.target == core
