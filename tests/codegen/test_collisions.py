"""No name that a model brings along can break the C, or collide with another."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microfold import target
from microfold.codegen.emit import emit
from microfold.codegen.model import Model
from microfold.codegen.names import model_identifier
from microfold.compiler import compile_graph
from microfold.frontend.labels import LabelFile, Labels
from microfold.options import Options
from tests.codegen.builds import STRICT
from tests.codegen.graphs import chain, dense_chain
from tests.codegen.toolchain import run, write
from tests.needs import need_tools

AWKWARD = [
    "", " ", "0", "3x3", "int", "while", "class", "arena", "state", "context", "layer", "bytes", "main",
    "input", "input_0", "output_0", "x_scratch", "x", "x_2", "net", "net_run", "net_init", "net_context",
    "mf", "mf_clamp", "mf_channel", "s8_fully_connected__c_4", "s8_fully_connected__c_4_layer", "weights",
    "simulate", "memcpy", "string", "stdint", "math", "float", "time", "a/b;c/BiasAdd", "a*/b", "/*", "??/",
    "line\nbreak", "\u65e5\u672c\u8a9e", "\u0000", '"quoted"', "%s", "{{ 7 * 7 }}", "{% raw %}", "x" * 300,
    "9" * 60, "ARENA", "KWS_HOOKS", "linux", "unix", "int8_t", "NET_ARENA", "net_x_weights", "x_weights",
    "constant", "s8_fully_connected", "a__b", "__x__", "init", "run", "NULL", "channels", "\\",
]  # fmt: skip
names = st.one_of(st.sampled_from(AWKWARD), st.text(max_size=50))


@pytest.mark.parametrize(
    ("model", "first", "layers", "single_file"),
    [
        ("mf", "mf_clamp", ["mf_clamp", "mf_channel", "x", "x_2", "x", "x_scratch"], True),
        ("stdint", "input_0", ["input_0", "input_0_offset", "arena", "context", "", ""], False),
        (
            *("net", "x"),
            ["net_run", "run", "net_context", "context", "size_check", "s8_fully_connected__c_4"],
            False,
        ),
        ("s8_fully_connected", "x", ["c_4", "c_4_channel", "layer"], True),
        ("s8_fully_connected", "x", ["c", "c_4", "constant"], False),
    ],
)
def test_awkward_names_compile(model: str, first: str, layers: list[str], single_file: bool) -> None:
    assert_compiles(model, first, layers, single_file)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(names, names, st.lists(names, min_size=1, max_size=6), st.booleans())
def test_any_names_compile(model: str, first: str, layers: list[str], single_file: bool) -> None:
    assert_compiles(model, first, layers, single_file)


def assert_compiles(model: str, first: str, layers: list[str], single_file: bool) -> None:
    need_tools("cc")
    program = compile_graph(
        dense_chain(model, first, layers), target.load("host"), Options(single_file=single_file)
    )
    files = emit(program)
    with tempfile.TemporaryDirectory() as folder:
        sources = write(Path(folder), files)
        # As a project sees it: the folder is searched for headers.
        command = ["cc", *STRICT, "-Wcomment", "-Wtrigraphs", "-I.", "-O0", "-fsyntax-only", *sources]
        result = subprocess.run(
            list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False
        )
    assert result.returncode == 0, result.stderr
    assert all(text.isascii() for text in files.values())


def test_names_of_a_file_are_of_kinds_that_their_form_tells() -> None:
    """Two underscores after the model's name: a layer's; another two: a kernel's."""
    program = compile_graph(dense_chain("net", "x", ["c_4", "mf_clamp"]), target.load("host"))
    model, files = Model(program), emit(program)
    layers = [array.name for array in model.arrays]
    layers += [f"{call.description}" for call in model.calls]
    layers += [place.name for part in model.arenas.values() for place in part]
    assert all(re.fullmatch(r"net__[a-z0-9]+(_[a-z0-9]+)*", name) for name in layers)
    kernels = [function.name for function in model.functions.values()]
    assert all(re.fullmatch(r"net__[a-z0-9_]+?[a-z0-9]__[a-z0-9_]+", name) for name in kernels)
    assert "net_mf_clamp(" in files["net.c"] and not re.search(r"(?<![\w\"])mf_", files["net.c"])
    assert "net_mf_" not in files["net.h"]


@given(st.text())
def test_model_names(text: str) -> None:
    name = model_identifier(text)
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name)
    assert model_identifier(name) == name


@pytest.mark.parametrize("text", ["mf", "mf_net", "MF/x", "stdint", "math.h", "main", "simulate", "time"])
def test_names_of_files_and_helpers_are_avoided(text: str) -> None:
    assert model_identifier(text).startswith("m_") or model_identifier(text) == "math_h"


@pytest.mark.parametrize("other", ["x.weights", "x.helpers"])
def test_models_of_one_folder_have_files_of_their_own(other: str) -> None:
    first, second = (
        emit(compile_graph(dense_chain(name, "x", ["y"]), target.load("host"))) for name in ("x", other)
    )
    assert first.keys().isdisjoint(second)


def test_models_of_one_program_have_constants_of_their_own(tmp_path: Path) -> None:
    need_tools("cc")
    files: dict[str, str] = {}
    for model, layer in (("a", "b_conv"), ("a_b", "conv")):
        files |= emit(compile_graph(dense_chain(model, "x", [layer]), target.load("host")))
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    sources = write(tmp_path, files)
    run(["cc", "-O0", f"-I{tmp_path}", *sources, tmp_path / "main.c", "-o", tmp_path / "both", "-lm"])


@pytest.mark.parametrize("weights", ["arrays", "blob"])
def test_models_of_one_program_have_helpers_of_their_own(weights: str) -> None:
    """No name of model `a` is one of a model whose name begins with `a_`, in no file."""
    labels = Labels((LabelFile("numbers", tuple("0123456")),))
    options = Options(step=True, weights=weights, taps=True)
    text = "".join(emit(compile_graph(chain("a"), target.load("host"), options, labels=labels)).values())
    suffixes = {"context", "context_size_check", *re.findall(r"\ba_(?!_)(\w+)\(", text)}
    assert {"output_0_argmax", "input_0", "input_0_from_rgb888", "run", "output_0_label"} <= suffixes
    assert {"step", "tap_write", "layer_name", "mf_multiply_high"} <= suffixes
    for suffix in suffixes:
        words = suffix.split("_")
        tails = {"_".join(words[n:]) for n in range(1, len(words))}
        assert tails.isdisjoint(suffixes), suffix


def test_a_model_may_be_called_like_a_header(tmp_path: Path) -> None:
    """Its own header must not be found in the place of the standard one."""
    need_tools("cc")
    program = compile_graph(dense_chain("string", "x", ["y"]), target.load("host"))
    sources = write(tmp_path, emit(program))
    run(["cc", *STRICT, f"-I{tmp_path}", "-fsyntax-only", *sources])
