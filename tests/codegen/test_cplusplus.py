"""The C is C++, too, for projects that compile all their files as that."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph
from microfold.errors import MicrofoldError
from microfold.options import Options
from tests.codegen import graphs
from tests.codegen.builds import sample_graphs
from tests.codegen.sweep import CPLUSPLUS_WARNINGS as WARNINGS
from tests.codegen.toolchain import run, write
from tests.needs import need_tools
from tests.sampling import sampled_rows

MADE = Path(__file__).resolve().parents[2] / "tests" / "models" / "made"
STANDARDS = ("c++11", "c++20")
CORES = ("host", "cortex-m4", "cortex-m55", "cortex-m0plus")


def compiler(core: str) -> list[str]:
    chosen = target.load(core)
    name = "g++" if core == "host" else chosen.compiler.replace("gcc", "g++")
    need_tools(name)
    return [name, *chosen.cpu_flags]


@pytest.mark.parametrize("standard", STANDARDS)
def test_samples_in_every_standard(standard: str, tmp_path: Path) -> None:
    command = [*compiler("host"), f"-std={standard}", *WARNINGS, "-x", "c++", "-fsyntax-only"]
    makers = {"accumulator": graphs.accumulator(), "outputs": graphs.several_outputs()}
    for name, graph in (sample_graphs() | makers).items():
        for options in (Options(single_file=True, step=True), Options(optimize="size", io="caller")):
            sources = write(
                tmp_path, emit(compile_graph(graph, target.load("host"), options, name=f"a_{name}"))
            )
            run([*command, *sources])


@pytest.mark.parametrize("constants", ["c", "c++"])
def test_it_runs_as_cplusplus(constants: str, tmp_path: Path) -> None:
    """Constants have one name for the linker, whichever language their file is compiled as."""
    text = """
    #include "net_helpers.h"
    static net_context network;
    int main() { net_init(&network); net_run(&network); return 0; }
    """
    need_tools("cc")
    write(tmp_path, emit(compile_graph(graphs.chain(), target.load("host"))) | {"main.cpp": text})
    weights = tmp_path / "weights.o"
    run(["cc", "-x", constants, "-c", tmp_path / "net_weights.c", "-o", weights])
    command = [*compiler("host"), *WARNINGS, "-x", "c++", tmp_path / "main.cpp", tmp_path / "net.c"]
    run([*command, "-x", "none", weights, "-o", tmp_path / "net"])
    run([tmp_path / "net"])


# A part of them: `python -m tests.codegen.sweep` takes all.
BUNDLED = sorted(MADE.rglob("*.tflite"))[::9]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "core"), sampled_rows(zip(BUNDLED, cycle(CORES)), 2), ids=lambda value: str(value)[-30:]
)
def test_bundled_models(path: Path, core: str, tmp_path: Path) -> None:
    try:
        program = compile_file(path, target.load(core), name=f"m_{path.stem}")
    except MicrofoldError:
        pytest.skip("it cannot be compiled")
    command = [*compiler(core), "-std=c++11", *WARNINGS, "-x", "c++", "-fsyntax-only"]
    run([*command, *write(tmp_path, emit(program))])
