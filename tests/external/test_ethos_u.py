"""Ethos-U custom operators: import, the driver's call, and what can be verified without an NPU."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from microfold import compiler, target
from microfold.cli.app import application
from microfold.codegen.emit import emit
from microfold.errors import ModelFormatError, NoReferenceError, UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.text import parse, to_text
from microfold.ops.external.ethos_u import EthosU
from microfold.options import Options
from microfold.reporting.data import build_report
from microfold.simulate.program import simulator
from microfold.verification.verify import input_sets, verify
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run, write
from tests.external import vela
from tests.external.flatbuffer import ModelSpec
from tests.external.flatbuffer import write as write_model
from tests.needs import CROSS_TOOLS, need_tools

STUB = Path(__file__).parent / "stub"
FLAGS = (f"-I{STUB}", str(STUB / "ethosu_driver.c"))


def imported(spec: ModelSpec | None = None) -> Graph:
    return import_model(write_model(spec or vela.model()), "npu")


def test_import() -> None:
    graph = imported()
    (node,) = (node for node in graph.nodes if isinstance(node.op, EthosU))
    assert [v.name for v in node.inputs if v is not None] == ["commands", "flash", "relu", "extra"]
    assert graph.array(node.inputs[0]).tobytes() == vela.COMMANDS  # type: ignore[union-attr]
    op = node.op
    assert (op.arena, op.fast, op.input_offsets, op.output_offsets) == (vela.ARENA, 0, (64, 512), (256, 64))
    assert to_text(parse(to_text(graph))) == to_text(graph)
    with pytest.raises(NoReferenceError, match="runs on the NPU only"):
        Interpreter(graph).run(*input_sets([v.type for v in graph.inputs], 1)[0])


def _moved(**offsets: int) -> ModelSpec:
    """The model with other places in its memory plan."""
    model, places = vela.model(), vela.OFFSETS | offsets
    plan = [places.get(t.name, 0 if "scratch" in t.name else -1) for t in model.tensors]
    return replace(model, metadata={"OfflineMemoryAllocation": vela.plan(plan)})


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (replace(vela.model(), metadata={}), "must be in the file's memory plan"),
        (_moved(extra=-1), "'extra' must be in the file's memory plan"),
        (_moved(first=264), "at multiples of 16"),
        (vela.with_operator(vela.model(), custom_options=b"\x02\x04\x01"), "its options must be"),
        (vela.with_operator(vela.model(), inputs=(0, 4, 5, 6, 1, 2)), "its command stream must be constant"),
        (vela.with_operator(vela.model(), inputs=(3, 0, 5, 6, 1, 2)), "weights must be"),
        (vela.with_operator(vela.model(), inputs=(3, 4, 5, 6)), "it has no input"),
    ],
)
def test_refused(spec: ModelSpec, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=re.escape(reason)):
        imported(spec)


def test_a_damaged_file_is_refused() -> None:
    data, rng = write_model(vela.model()), np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.integers(len(data))] = rng.integers(256)
        try:
            import_model(bytes(damaged))
        except (ModelFormatError, UnsupportedModelError):
            continue


@pytest.mark.parametrize("options", [Options(), Options(single_file=True), Options(io="caller")])
def test_the_driver_gets_what_it_wants(options: Options) -> None:
    """The stub looks at alignment, sizes, order and places, and computes something."""
    program = compiler.compile_graph(imported(), target.load("host"), replace(options, external_flags=FLAGS))
    calls = input_sets([b.type for b in program.inputs], 6)
    session = Session(program)
    for x, extra in calls:
        _, values = session.run_layers(x, extra)
        first, second = (values[buffer.value].reshape(-1) for buffer in program.layers[1].outputs)
        relu = np.maximum(x.reshape(-1), 0)
        repeated = np.resize(extra.reshape(-1), 9)
        np.testing.assert_array_equal(first, relu[:9] + repeated)
        commands, weights = (np.frombuffer(data, np.uint8) for data in (vela.COMMANDS, vela.WEIGHTS))
        expected = commands[:9] ^ weights[::-1][:9] ^ relu.astype(np.uint8)[::-1][:9]
        np.testing.assert_array_equal(second, expected.astype(np.int8))
    result = verify(program, calls)
    assert result.exact
    assert result.unchecked == ("first",)


def test_verify_says_what_it_cannot_check(tmp_path: Path) -> None:
    """Without a driver, something stands in for it, so that the other layers can be checked."""
    program = compiler.compile_graph(imported(), target.load("host"))
    result = verify(program, input_sets([b.type for b in program.inputs], 4))
    assert result.exact
    assert result.unchecked == ("first",)
    assert result.tensors == 4 * 2  # relu and add
    (tmp_path / "npu.tflite").write_bytes(write_model(vela.model()))
    shown = CliRunner().invoke(application(), ["verify", str(tmp_path / "npu.tflite")])
    assert shown.exit_code == 0, shown.output
    assert "not checked: 'first'" in " ".join(shown.output.split())


def test_a_wrong_layer_behind_the_npu_is_found() -> None:
    program = compiler.compile_graph(imported(), target.load("host"))
    add = program.layers[2]
    (zero_point,) = program.outputs[0].type.quant.zero_points
    wrong = dict(add.call.parameters) | {"offset": (zero_point + 40) << add.call.parameters["shift"]}
    layers = (*program.layers[:2], replace(add, call=replace(add.call, parameters=wrong)))
    result = verify(replace(program, layers=layers), input_sets([b.type for b in program.inputs], 4))
    assert [d.name for d in result.differences] == ["y"]


@pytest.mark.parametrize("cc", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_the_code_is_strict_c(cc: str, tmp_path: Path) -> None:
    need_tools(cc)
    core = target.load("cortex-m55" if cc.startswith("arm") else "host")
    for index, options in enumerate((Options(), Options(single_file=True, weights_section=".npu"))):
        files = emit(compiler.compile_graph(imported(), core, options))
        for source in write(tmp_path / str(index), files):
            run([cc, *core.cpu_flags, *STRICT, "-O2", f"-I{STUB}", "-c", source, "-o", tmp_path / "x.o"])
        constants = files.get("npu_weights.c", files["npu.c"])
        assert len(re.findall(r"NPU_ALIGNED\(16\) = {", constants)) == 2


def test_report() -> None:
    report = build_report(compiler.compile_graph(imported(), target.load("host")), None)
    (library,) = report.libraries
    assert library.functions == ("ethosu_reserve_driver", "ethosu_invoke_v3", "ethosu_release_driver")
    assert report.layers[1].op == "ethos_u"


@pytest.mark.exhaustive
def test_on_a_simulated_core() -> None:
    need_tools(*CROSS_TOOLS)
    options = Options(external_flags=FLAGS)
    program = compiler.compile_graph(imported(), target.load("cortex-m55"), options)
    result = verify(program, input_sets([b.type for b in program.inputs], 3))
    assert result.exact
    assert result.unchecked == ("first",)
    with simulator(compiler.compile_graph(imported(), target.load("cortex-m55"))) as machine:
        assert machine.run(input_sets([b.type for b in program.inputs], 1)).instructions[0] > 0
