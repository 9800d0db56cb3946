"""The generated C of small models, to be read and reviewed as a diff."""

from __future__ import annotations

from microfold import __version__, target
from microfold.codegen.emit import emit_build
from microfold.compiler import compile_graph
from microfold.options import Options
from microfold.program import Program
from tests.codegen.graphs import accumulator, dense_chain
from tests.golden import Golden


def test_layers_for_the_host(golden: Golden) -> None:
    graph = dense_chain(
        "dense", "serving_default_x:0", ["net/one/Relu;net/one/BiasAdd", "net/two", "Identity"]
    )
    check(golden, compile_graph(graph, target.load("host")))


def test_state_in_the_callers_buffers_for_a_core(golden: Golden) -> None:
    options = Options(io="caller", single_file=True, weights_section=".flash.weights")
    check(golden, compile_graph(accumulator(), target.load("cortex-m4"), options))


def check(golden: Golden, program: Program) -> None:
    build = emit_build(program)
    for name, text in build.files.items():
        golden.check(name, text.replace(__version__, "VERSION").replace(build.id, "BUILD"))
