"""Kernel functions: shared where they are equal, their structs without what they do not read."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_graph
from microfold.kernels.call import KernelCall
from microfold.kernels.fields import Field
from microfold.kernels.kernel import KERNELS
from microfold.options import Options
from tests.codegen import graphs
from tests.codegen.builds import compile_sample, sample_graphs
from tests.codegen.contract.scan import assert_declared, assert_indented, unread_fields
from tests.plan.stream.nets import Nets


def test_kernel_names_are_of_their_own_kind() -> None:
    """Two underscores in a row: no name made from a model's has them."""
    assert all(re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*__[a-z0-9]+(_[a-z0-9]+)*", k.name) for k in KERNELS)
    assert len({kernel.name for kernel in KERNELS}) == len(KERNELS)


def test_equal_functions_are_emitted_once() -> None:
    graph = graphs.dense_chain("net", "x", [f"layer{i}" for i in range(7)])
    text = emit(compile_graph(graph, target.load("host")))["net.c"]
    definitions = re.findall(r"^static (?!inline)[^=;]*?(\w+__\w+)\(", text, re.MULTILINE)
    assert len(definitions) == len(set(definitions))
    calls = re.findall(r"^    (\w+)\(&\w+_layer", text, re.MULTILINE)
    assert len(calls) == 7 and len(set(calls)) < 7


@pytest.mark.parametrize(
    ("options", "own"),
    [
        (Options(optimize="speed"), True),
        (Options(objective="flash=1"), False),
    ],
)
def test_speed_gives_each_layer_its_function(options: Options, own: bool) -> None:
    graph = graphs.dense_chain("net", "x", [f"layer{i}" for i in range(7)])
    text = emit(compile_graph(graph, target.load("cortex-m4"), options))["net.c"]
    calls = re.findall(r"^    (\w+)\(&\w+_layer", text, re.MULTILINE)
    assert len(calls) == 7 and (len(set(calls)) == 7) == own
    apart = [re.search(rf"^static net_mf_noinline void {name}\(", text, re.MULTILINE) for name in calls]
    assert all(apart) if own else not any(apart)


@pytest.mark.parametrize("core", ["host", "cortex-m4", "cortex-m55"])
def test_declarations(core: str) -> None:
    for name, graph in sample_graphs().items():
        assert_declared(compile_sample(name, graph, core))


def test_unread_fields_are_found() -> None:
    program = compile_sample("add", sample_graphs()["add"])
    (layer,) = program.layers
    fields = (*layer.call.function.fields, Field("pitch"))
    call = KernelCall(replace(layer.call.function, fields=fields), {**layer.call.parameters, "pitch": 3})
    unread = unread_fields(replace(program, layers=(replace(layer, call=call),)))
    assert unread == {f"{layer.call.function.name}.pitch"}


@pytest.mark.parametrize("core", ["host", "cortex-m4", "cortex-m55"])
def test_lines_are_indented_as_deep_as_their_braces(core: str) -> None:
    """What templates leave out must not pull a line out of its place."""
    for name, graph in sample_graphs().items():
        assert_indented(emit(compile_sample(name, graph, core))[f"{name}.c"])


@pytest.mark.parametrize(
    "options",
    [
        Options(io="rows"),
        Options(io="rows", memory="split"),
        Options(io="caller", ram=2_000),
        Options(io="caller", ram=2_000, memory="split"),
        Options(ram=2_000),
    ],
    ids=lambda options: f"{options.io}-{options.memory}",
)
def test_lines_of_rows_are_indented(options: Options) -> None:
    program = compile_graph(Nets(0).tall(), target.load("cortex-m4"), options, name="net")
    assert program.stream is not None
    assert_indented(emit(program)["net.c"])
