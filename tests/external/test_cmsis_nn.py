"""Calls of CMSIS-NN, run against a stub of its functions; facts that are its own are stated as numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from microfold import compiler, target
from microfold.cli.app import application
from microfold.codegen.emit import emit
from microfold.errors import InputError, ToolError
from microfold.external.cmsis_nn import scratch
from microfold.external.cmsis_nn.scratch import Geometry
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ops.window import Window
from microfold.options import Options
from microfold.passes.context import Decision, PassContext
from microfold.program import Program
from microfold.reporting.data import build_report
from microfold.target import Target
from microfold.target.description import close_features
from microfold.verification.measure import measure
from microfold.verification.verify import input_sets, verify
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run, write
from tests.external import networks
from tests.frontend.models import MADE
from tests.needs import need_tools
from tests.sampling import quick, sampled

STUB = Path(__file__).parent / "stub"
# The library's variants: what the planner thinks of, and what the stub does.
VARIANTS = {"c": ([], []), "halves": (["dsp"], ["-DSTUB_HALVES"]), "vectors": (["mve"], ["-DSTUB_VECTORS"])}


def variant(name: str) -> Target:
    """A core with the variant's instructions, run on this machine: calls alone are portable."""
    features = close_features(VARIANTS[name][0], name)
    return replace(target.load("host"), name=name, features=features)


def compiled(graph: Graph, core: Target, *flags: str, decisions: list[Decision] | None = None) -> Program:
    options = Options(
        external=("cmsis-nn",), external_flags=(f"-I{STUB}", str(STUB / "arm_nnfunctions.c"), *flags)
    )
    context = PassContext(sink=decisions.append if decisions is not None else None)
    return compiler.compile_graph(graph, core, options, context=context)


@pytest.mark.parametrize("name", quick(VARIANTS))
@pytest.mark.parametrize("make", [networks.convolutions, networks.others], ids=["convolutions", "others"])
def test_the_calls_compute_the_reference(name: str, make) -> None:
    program = compiled(make(), variant(name), *VARIANTS[name][1])
    assert all("__cmsis_nn" in layer.kernel.name for layer in program.layers)
    result = verify(program, input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.differences


# Calls of the library that models need.
CALLS = {"cnn_int8": 5, "preact_bn_int8": 7, "attn_int8": 14}


@pytest.mark.parametrize("model", sampled(CALLS, 3))
def test_models(model: str) -> None:
    options = Options(external=("cmsis-nn",), external_flags=(f"-I{STUB}", str(STUB / "arm_nnfunctions.c")))
    program = compiler.compile_file(MADE / f"{model}.tflite", target.load("host"), options)
    assert sum("__cmsis_nn" in layer.kernel.name for layer in program.layers) == CALLS[model]
    assert program.macs == compiler.compile_file(MADE / f"{model}.tflite", target.load("host")).macs
    assert verify(program, input_sets([b.type for b in program.inputs], 4)).exact


@pytest.mark.parametrize("name", networks.refused())
def test_what_it_would_compute_otherwise_stays_here(name: str) -> None:
    graph, reason = networks.refused()[name]
    decisions: list[Decision] = []
    program = compiled(graph, target.load("host"), decisions=decisions)
    assert not program.libraries
    assert any(reason in d.reason and not d.fired for d in decisions), decisions


# What the library's own functions give (release 7.0.0): with vectors, with halves of words, in C.
SAME = ((1, 1), (1, 1))
NONE = ((0, 0), (0, 0))
SIZES = [
    (scratch.convolution, ((8, 8), 1, (3, 3), (1, 1), SAME, 8), (64, 48, 48)),
    (scratch.convolution, ((8, 8), 5, (3, 3), (2, 2), SAME, 8), (192, 192, 192)),
    (scratch.convolution, ((8, 8), 16, (1, 1), (1, 1), NONE, 8), (0, 64, 0)),  # 64 by Arm's compiler only
    (scratch.convolution, ((8, 8), 16, (1, 1), (2, 2), NONE, 8), (0, 0, 0)),
    (scratch.convolution, ((49, 10), 1, (10, 4), (2, 2), ((4, 5), (1, 1)), 64), (192, 160, 160)),
    (scratch.depthwise_convolution, ((8, 8), 8, (3, 3), (1, 1), SAME, 8), (4464, 0, 0)),
    (scratch.depthwise_convolution, ((8, 8), 8, (5, 5), (1, 1), ((2, 2), (2, 2)), 8), (12400, 400, 0)),
    (scratch.depthwise_convolution, ((8, 8), 1, (3, 3), (1, 1), SAME, 4), (100, 0, 0)),
    (scratch.depthwise_convolution, ((8, 8), 3, (3, 3), (1, 1), SAME, 6), (0, 0, 0)),
    (scratch.depthwise_convolution, ((12, 12), 16, (4, 4), (1, 1), NONE, 16), (7936, 512, 0)),
]


@pytest.mark.parametrize(("rule", "layer", "sizes"), SIZES)
def test_scratch_is_what_the_library_wants(rule, layer, sizes: tuple[int, int, int]) -> None:
    image, channels, kernel, strides, padding, filters = layer
    window = Window(kernel, strides, (1, 1), padding)
    shape = Geometry(image, channels, window.output_size(*image), filters, window)
    assert tuple(rule(shape, target.load(f"cortex-{core}")) for core in ("m55", "m4", "m3")) == sizes


@pytest.mark.slow
def test_a_version_that_wants_more_scratch_is_not_called() -> None:
    program = compiled(networks.convolutions(), target.load("host"), "-DSTUB_GREEDY")
    session = Session(program)
    with pytest.raises(ToolError, match=r"CMSIS-NN 7.0.0 or later failed with status -1"):
        session.run(*input_sets([b.type for b in program.inputs], 1)[0])


@pytest.mark.slow
def test_without_the_library() -> None:
    program = compiler.compile_graph(networks.others(), target.load("host"), Options(external=("cmsis-nn",)))
    assert measure(program) is None
    with pytest.raises(ToolError, match=r"the code calls CMSIS-NN .*--external-flags"):
        Session(program)


@pytest.mark.parametrize("cc", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_the_code_is_strict_c(cc: str, tmp_path: Path) -> None:
    need_tools(cc)
    for index, make in enumerate((networks.convolutions, networks.others)):
        core = target.load("cortex-m55" if cc.startswith("arm") else "host")
        program = compiled(make(), core)
        for source in write(tmp_path / str(index), emit(program)):
            run([cc, *core.cpu_flags, *STRICT, "-O2", f"-I{STUB}", "-c", source, "-o", tmp_path / "x.o"])


def test_header_and_report_say_what_to_link() -> None:
    program = compiled(networks.others(), target.load("host"))
    header = emit(program)["net.h"]
    assert "Link with CMSIS-NN 7.0.0 or later, which provides arm_fully_connected_wrapper_s8" in header
    (library,) = build_report(program, None).libraries
    assert library.headers == ("arm_nnfunctions.h",)
    assert "arm_softmax_s8" in library.functions
    assert build_report(program, None).accumulators.proved


def test_command_line(tmp_path: Path) -> None:
    model = str(MADE / "cnn_int8.tflite")
    flags = f"-I{STUB} {STUB / 'arm_nnfunctions.c'}"
    runner = CliRunner()
    app = application()
    built = runner.invoke(app, ["build", model, "-o", str(tmp_path), "--external", "cmsis-nn", "--json"])
    assert built.exit_code == 0, built.output
    assert json.loads(built.output)["options"]["external"] == ["cmsis-nn"]
    checked = runner.invoke(
        app, ["verify", model, "--external", "cmsis-nn", "--external-flags", flags, "--json"]
    )
    assert json.loads(checked.output)["exact"], checked.output
    shown = runner.invoke(app, ["kernels", model, "--external", "cmsis-nn", "--json"])
    assert json.loads(shown.output)[0]["candidates"][0]["kernel"] == "s8_conv2d__cmsis_nn"


def test_an_unknown_code_generator() -> None:
    with pytest.raises(InputError, match="code generator nope; available: cmsis-nn, ethos-u"):
        compiler.compile_graph(networks.others(), target.load("host"), Options(external=("nope",)))
