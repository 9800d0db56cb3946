"""`--memory parts`: the arena in several objects, each for a memory of the target."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph
from microfold.errors import InputError
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.lowering.one_run import check_one_run
from microfold.options import Options
from microfold.plan.parts import PartsPlan, plan_parts
from microfold.program import Program
from microfold.target import Target
from microfold.target.memories import TargetMemory
from microfold.verification.verify import compare, input_sets, verify
from tests import loops
from tests.codegen import graphs
from tests.codegen.toolchain import objects, run, write
from tests.command_line import refuse, succeed
from tests.counts import MODELS
from tests.docs.test_firmware_page import main, output
from tests.e2e.refusals import needed
from tests.kernels.random_networks import random_network
from tests.needs import CROSS_TOOLS, need_tools
from tests.reporting.test_schema import faults

HOST = target.load("host")
PARTS = Options(memory="parts")
GRAPHS = graphs.PORTS_AND_STATES
WAYS = (
    PARTS,
    replace(PARTS, io="caller", step=True, single_file=True),
    replace(PARTS, weights="blob", align=32),
    replace(PARTS, taps=True),
)


def memories(fast: int) -> tuple[TargetMemory, ...]:
    return (
        TargetMemory("slow", 1 << 20, 5, ("data", "constants"), "", "SLOW"),
        TargetMemory("fast", fast, 1, ("data",), "", "FAST"),
    )


def having(fast: int, core: Target = HOST) -> Target:
    return replace(core, memories=memories(fast))


def check_bits(program: Program, graph: Graph, calls: int = 3) -> None:
    check_one_run(program)
    session, interpreter = Session(program), Interpreter(graph)
    for call in input_sets([value.type for value in graph.inputs], calls):
        outputs, values = session.run_layers(*call)
        assert all(compare(a, b) is None for a, b in zip(outputs, interpreter.run(*call), strict=True))
        assert values


@pytest.mark.parametrize("options", WAYS, ids=lambda o: f"{o.io}-{o.weights}-{o.taps}")
@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_runs_equal_the_interpreter(make: Callable[[], Graph], options: Options) -> None:
    graph = make()
    whole = compile_graph(graph, HOST, options=replace(options, memory="split")).arena.size
    program = compile_graph(graph, having(max(whole // 2, 8)), options)
    assert program.parts and program.parts[0] <= max(whole // 2, 8)
    check_bits(program, graph)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_random_networks(seed: int, share: float) -> None:
    graph = random_network(seed)
    whole = compile_graph(graph, HOST, name="net").arena.size
    program = compile_graph(graph, having(max(int(share * whole), 1)), PARTS, name="net")
    assert len(program.parts) == 2 and program.parts[0] <= share * whole + 8
    assert (program.parts[1] == 0) == (share == 1)
    check_bits(program, graph, 2)


def test_without_it_nothing_changes() -> None:
    program = compile_file(MODELS["digits"], having(512))
    assert not program.parts and "arena_2" not in "".join(emit(program).values())


def test_with_constants_that_are_copied() -> None:
    qspi = TargetMemory("qspi", 1 << 20, 20, ("constants",), "", "QSPI", prefetch=True)
    core = replace(HOST, memories=(*(replace(m, use=("data",)) for m in memories(700)), qspi))
    program = compile_file(MODELS["digits"], core, PARTS)
    assert program.parts and any(layer.fetched is not None for layer in program.layers)
    check_bits(program, program.source)


def test_a_limit_that_is_met_anyway_plans_parts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And they are those of no limit; below that, they are planned anew."""
    limits: list[int | None] = []

    def planned(*arguments: Any) -> PartsPlan:
        limits.append(arguments[-1])
        return plan_parts(*arguments)

    monkeypatch.setattr("microfold.lowering.planned.plan_parts", planned)
    core = having(512)
    free = compile_file(MODELS["digits"], core, PARTS)
    ram = sum(free.parts) + free.state_size
    assert compile_file(MODELS["digits"], core, replace(PARTS, ram=ram)).parts == free.parts
    assert limits == [None, None]
    less = compile_file(MODELS["digits"], core, replace(PARTS, ram=ram - 8))
    assert sum(less.parts) <= ram - 8 and len(limits) > 3


@pytest.mark.parametrize("name", ["digits", "cnn_int8"])
@pytest.mark.parametrize("optimize", ["size", "balanced"])
def test_limits(name: str, optimize: str) -> None:
    """All parts together keep a limit; what a refusal says would do does, and less is refused."""
    core, options = having(512), replace(PARTS, optimize=optimize)
    free = compile_file(MODELS[name], core, options)
    with pytest.raises(InputError) as refused:
        compile_file(MODELS[name], core, replace(options, ram=8))
    least, most = needed(refused.value), free.arena.size + free.state_size
    for ram in (least, (least + most) // 2, most - 8, most):
        program = compile_file(MODELS[name], core, replace(options, ram=ram))
        assert sum(program.parts) + program.state_size <= ram
        assert len(program.parts) == 2 and program.stream is None
    assert program.parts == free.parts


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a target with several memories for data; host has 0"):
        compile_graph(graphs.chain(), HOST, PARTS)
    with pytest.raises(InputError, match="does not support loops and conditions"):
        compile_graph(loops.bounded(), having(64), PARTS)
    with pytest.raises(InputError, match="line buffers require a single arena"):
        Options(memory="parts", io="rows")
    with pytest.raises(InputError, match="by rows, line buffers require a single arena, not several parts"):
        compile_file(MODELS["digits"], having(512), replace(PARTS, ram=8))
    text = refuse("build", MODELS["digits"], MODELS["cnn_int8"], "--memory", "parts", "-o", tmp_path)
    assert "--memory parts applies to a single model" in text


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_compilers_say_nothing(compiler: str, tmp_path: Path) -> None:
    made = {
        f"n{number}_{make.__name__}": compile_graph(
            make(), having(16), options, name=f"n{number}_{make.__name__}"
        )
        for number, options in enumerate(WAYS)
        for make in GRAPHS[1:5]
    }
    objects(tmp_path, {n: text for p in made.values() for n, text in emit(p).items()}, ("-O0",), compiler)


BOARD = """
features = ["dsp", "fpu"]
compiler = "arm-none-eabi-gcc"
cpu_flags = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
[memory.dtcm]
size = 768
cycles = 1
use = ["data"]
[memory.sram]
size = 65536
cycles = 2
use = ["data"]
[memory.flash]
size = 262144
cycles = 3
use = ["constants"]
region = "ROM"
"""


def test_the_command_line(tmp_path: Path) -> None:
    board = tmp_path / "board.toml"
    board.write_text(BOARD, encoding="utf-8")
    text = succeed("build", MODELS["digits"], "-t", board, "--memory", "parts", "-o", tmp_path)
    assert "digits_run(&network, &arena, &arena_2);" in text and "; in parts of " in text
    report = json.loads((tmp_path / "digits_report.json").read_text(encoding="utf-8"))
    assert not faults(report)
    assert sum(report["ram"]["parts"]) == report["ram"]["arena"]
    filled = {memory["name"]: memory["context"] for memory in report["memories"]}
    assert 0 < filled["dtcm"] <= 768 and filled["sram"] > 0


@pytest.mark.slow
def test_on_a_core(tmp_path: Path) -> None:
    """Every tensor is the reference's, and all lies in the memories of a board."""
    need_tools(*CROSS_TOOLS)
    core = having(768, target.load("cortex-m4"))
    for options in (PARTS, replace(PARTS, io="caller", align=32)):
        program = compile_file(MODELS["digits"], core, options)
        assert all(program.parts)
        assert verify(program, input_sets([b.type for b in program.inputs], 2)).exact
    (tmp_path / "board.toml").write_text(BOARD, encoding="utf-8")
    placed = compile_file(MODELS["digits"], target.load(str(tmp_path / "board.toml")), PARTS, name="kws")
    memory = """
    MEMORY
    {
      DTCM (rw) : ORIGIN = 0x20200000, LENGTH = 768
      SRAM (rw) : ORIGIN = 0x20300000, LENGTH = 64K
      ROM  (r)  : ORIGIN = 0x00100000, LENGTH = 256K
    }
    """
    names = {index: f"arena_{index + 1}" if index else "arena" for index in range(2)}
    held, result = (names[placed.arena_part(b.offset)[0]] for b in (placed.inputs[0], placed.outputs[0]))
    variables = """
    static KWS_CONTEXT_SECTION kws_context network;
    static KWS_ARENA_SECTION kws_arena arena;
    static KWS_ARENA_2_SECTION kws_arena_2 arena_2;
    """
    body = f"""
        memcpy(kws_input_0(&{held}), input, sizeof input);
        kws_run(&network, &arena, &arena_2);
        printf("%p %p", (void *)&arena, (void *)&arena_2);
        for (uint32_t i = 0; i < KWS_OUTPUT_0_LENGTH; i++) printf(" %d", kws_output_0(&{result})[i]);
    """
    text = main(body, "", variables).replace("static kws_context whole;", "#define whole network")
    text = re.sub(r"    memcpy\(kws_input_0\(&whole\).*\n    kws_run\(&whole\);\n", "", text)
    sources = write(tmp_path, emit(placed) | {"main.c": text})
    fragment = tmp_path / "kws.ld"
    fragment.write_text(memory + fragment.read_text(encoding="utf-8"), encoding="utf-8")
    first, second, *numbers = output(tmp_path, sources, "-T", str(fragment)).split()
    assert (int(first, 16) >> 16, int(second, 16) >> 16) == (0x2020, 0x2030)
    plain = tmp_path / "plain"
    body = """
        memcpy(kws_input_0(&network), input, sizeof input);
        kws_run(&network);
        for (uint32_t i = 0; i < KWS_OUTPUT_0_LENGTH; i++) printf(" %d", kws_output_0(&network)[i]);
    """
    whole = compile_file(MODELS["digits"], target.load("cortex-m4"), name="kws")
    sources = write(plain, emit(whole) | {"main.c": main(body, "", "static kws_context network;")})
    assert output(plain, sources).split() == numbers
    table = run(["arm-none-eabi-objdump", "-h", tmp_path / "image.elf"])
    sizes = {name: int(size, 16) for name, size in re.findall(r" (\.\w+\.\w+) +(\w+)", table)}
    assert placed.parts[0] <= sizes[".dtcm.data"] <= 768 and sizes[".sram.data"] >= placed.parts[1]
