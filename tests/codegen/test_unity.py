"""Several models in one translation unit, as unity builds and projects with one source file have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph
from microfold.options import Options
from microfold.program import Program
from tests.codegen import graphs
from tests.codegen.builds import STRICT, sample_graphs
from tests.codegen.toolchain import run, write
from tests.counts import MODELS
from tests.needs import need_tools

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "tests" / "models" / "made"


def unit(folder: Path, programs: Sequence[Program]) -> Path:
    """A file that includes the C of all the programs, and their helpers."""
    sources = [source.name for program in programs for source in write(folder, emit(program))]
    assert len(sources) == len(set(sources))
    whole = folder / "unity.c"
    headers = [f"{program.name}_helpers.h" for program in programs]
    whole.write_text("".join(f'#include "{name}"\n' for name in (*sources, *headers)), encoding="utf-8")
    return whole


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_models_share_a_translation_unit(compiler: str, tmp_path: Path) -> None:
    need_tools(compiler)
    host = target.load("host")
    programs = [compile_graph(graph, host, name=f"a_{name}") for name, graph in sample_graphs().items()]
    chosen = (Options(step=True), Options(optimize="size"), Options(single_file=True, io="caller"))
    for options in (*chosen, Options(weights="blob")):
        made = (graphs.chain(), graphs.accumulator(), graphs.several_outputs())
        prefix = f"b{len(programs)}"
        programs += [compile_graph(graph, host, options, name=f"{prefix}_{graph.name}") for graph in made]
    run([compiler, *STRICT, "-fsyntax-only", unit(tmp_path, programs)])


def test_names_that_continue_each_other_share_a_translation_unit(tmp_path: Path) -> None:
    need_tools("cc")
    names = (("a", "b_conv"), ("a_b", "conv"), ("a_mf", "clamp"), ("a_mf_clamp", "b"), ("a_f16", "cast"))
    made = [(model, graphs.dense_chain(model, "x", [layer])) for model, layer in names]
    programs = [compile_graph(graph, target.load("host"), name=model) for model, graph in made]
    run(["cc", *STRICT, "-fsyntax-only", unit(tmp_path, programs)])


# The core that all is compiled for, and those that models are made for.
MIXTURES = [
    ("cortex-m4", ("cortex-m4", "cortex-m3", "cortex-m0plus", "host")),
    ("cortex-m55", ("cortex-m55", "cortex-m4")),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("core", "targets"), MIXTURES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_models_for_different_cores_share_a_translation_unit(
    core: str, targets: Sequence[str], tmp_path: Path
) -> None:
    compiled_for = target.load(core)
    need_tools(compiled_for.compiler)
    whole = unit(tmp_path, list(_mixed(targets)))
    command = [compiled_for.compiler, *compiled_for.cpu_flags, *STRICT, "-O2", "-c", whole]
    run([*command, "-o", tmp_path / "unity.o"])


def _mixed(targets: Sequence[str]) -> Iterator[Program]:
    paths = [MODELS["digits"], *(MADE / f"{name}.tflite" for name in ("cnn_int8", "cnn_f32", "cnn_int16x8"))]
    for path in (*paths, *sorted((MADE / "ops").glob("*.tflite"))[::40]):
        for name in targets:
            yield compile_file(path, target.load(name), name=f"{path.stem}_{name}")
