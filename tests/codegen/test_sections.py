"""Where constants and code go: for a whole model, and for single layers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph
from microfold.errors import InputError
from microfold.host.session import Session
from microfold.options import Options
from microfold.simulate.program import simulator
from microfold.verification.verify import input_sets
from tests.codegen import graphs
from tests.codegen.builds import compile_sample, sample_graphs
from tests.codegen.toolchain import objects, sections, symbols
from tests.counts import MODELS
from tests.needs import CROSS_TOOLS, need_tools

LAYERS = ["one", "two", "three"]


def filled(paths: list[Path], pattern: str) -> set[str]:
    """Sections of object files that have bytes."""
    return {
        name for path in paths for name, size in sections(path).items() if size and re.match(pattern, name)
    }


def chain(options: Options) -> dict[str, str]:
    return emit(compile_graph(graphs.dense_chain("net", "x", LAYERS), target.load("host"), options))


@pytest.mark.parametrize("name", sample_graphs())
def test_all_code_goes_where_the_macro_says(name: str, tmp_path: Path) -> None:
    program = compile_sample(name, sample_graphs()[name])
    flags = ("-O0", f'-D{name.upper()}_CODE_SECTION=__attribute__((section(".fast")))')
    assert filled(objects(tmp_path, emit(program), flags), r"\.(text|fast)") == {".fast"}


@pytest.mark.parametrize("single_file", [False, True])
def test_constants_of_a_layer(single_file: bool, tmp_path: Path) -> None:
    options = Options(place=("two=.qspi",), weights_section=".flash", single_file=single_file)
    made = objects(tmp_path, chain(options))
    assert filled(made, r"\.(rodata|qspi|flash)") == {".qspi", ".flash"}
    assert sum(sections(path).get(".qspi", 0) for path in made) >= 4 * 5


def test_code_of_a_layer_is_not_part_of_the_run_function(tmp_path: Path) -> None:
    made = objects(tmp_path, chain(Options(place_code=("two=.itcm",), optimize="size")), ("-O2",))
    assert ".itcm" in filled(made, r"\.itcm")
    assert any("net__s8_fully_connected" in name for path in made for name in symbols(path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"place": ("four=.x",)}, r"unknown layer 'four'; layers: one, two, three"),
        ({"place_code": ("One=.x",)}, r"unknown layer 'One'; layers: one, two, three"),
        (
            {"place": ("one",)},
            r"a placement must have the form LAYER=SECTION, e\.g\. conv1=\.qspi; got 'one'",
        ),
        ({"place": ("one=a b",)}, r"a section name may have letters.*'a b'"),
        ({"place": ("one=",)}, r"a section name may have letters.*''"),
        ({"place": ("one=.x", "one=.y")}, r"must name one section per layer; it names several for one"),
    ],
)
def test_what_cannot_be_placed(options: dict[str, Any], message: str) -> None:
    graph = graphs.dense_chain("net", "x", LAYERS)
    with pytest.raises(InputError, match=message):
        compile_graph(graph, target.load("host"), Options(**options))


def test_layers_that_share_a_kernel_are_in_one_section() -> None:
    graph = graphs.dense_chain("net", "x", [f"layer{i}" for i in range(7)])
    layers = compile_graph(graph, target.load("host")).layers
    one, other = next(
        (a, b) for a in layers for b in layers[a.index + 1 :] if a.call.function == b.call.function
    )
    both = [f"{one.name}=.x", f"{other.name}=.x"]
    compile_graph(graph, target.load("host"), Options(place_code=tuple(both)))
    with pytest.raises(InputError, match=f"share their kernel .*; {one.name} is in .x, {other.name} in .y"):
        compile_graph(graph, target.load("host"), Options(place_code=(both[0], f"{other.name}=.y")))


def test_placed_layers_compute_the_same() -> None:
    graph = graphs.chain()
    options = Options(place=("conv_a=.qspi", "logits=.qspi"), place_code=("conv_b=.itcm",))
    plain, placed = (Session(compile_graph(graph, target.load("host"), o)) for o in (Options(), options))
    for call in input_sets([value.type for value in graph.inputs], 4):
        assert all((a == b).all() for a, b in zip(plain.run(*call), placed.run(*call), strict=True))


@pytest.mark.slow
def test_placed_layers_on_a_core() -> None:
    need_tools(*CROSS_TOOLS)
    core = target.load("cortex-m4")
    names = [layer.name for layer in compile_file(MODELS["digits"], core).layers]
    options = Options(place=(f"{names[0]}=.qspi",), place_code=(f"{names[-1]}=.itcm",))
    outputs = []
    for chosen in (Options(), options):
        program = compile_file(MODELS["digits"], core, chosen)
        calls = input_sets([buffer.type for buffer in program.inputs], 4)
        with simulator(program) as machine:
            outputs.append([result[0].tobytes() for result in machine.run(calls, layers=False).outputs])
    assert outputs[0] == outputs[1]
