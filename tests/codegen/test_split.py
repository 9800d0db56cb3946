"""`--memory split`: the arena apart from the context, so that models share one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph
from microfold.errors import InputError
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.options import IO, WHOLE_IO, Options
from microfold.program import Program
from microfold.target.memories import TargetMemory
from microfold.verification.verify import compare, input_sets, verify
from tests import loops
from tests.codegen import graphs
from tests.codegen.toolchain import objects, sections, write
from tests.command_line import refuse, succeed
from tests.counts import MODELS, executed
from tests.docs.test_firmware_page import output
from tests.needs import CROSS_TOOLS, need_tools
from tests.plan.stream.nets import Nets
from tests.sampling import sampled

HOST = target.load("host")
GRAPHS = (*graphs.PORTS_AND_STATES, loops.branch, loops.bounded)
# Ways to hand over, and what else there may be of functions and members.
WAYS = (
    Options(memory="split"),
    Options(memory="split", io="caller", step=True, single_file=True),
    Options(memory="split", weights="blob", align=32),
    Options(memory="split", taps=True),
)


def spoil(session: Session) -> None:
    """Fill the arena, as another network would."""
    size = session.program.arena.size
    (arena,) = session._arenas  # type: ignore[reportPrivateUsage]
    ffi = session._library.ffi  # type: ignore[reportPrivateUsage]
    ffi.buffer(arena, size)[:] = np.random.default_rng(0).bytes(size)


@pytest.mark.parametrize("options", WAYS, ids=lambda o: f"{o.io}-{o.weights}-{o.taps}")
@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_runs_equal_the_interpreter_whatever_the_arena_holds(
    make: Callable[[], Graph], options: Options
) -> None:
    graph = make()
    session = Session(compile_graph(graph, HOST, options))
    interpreter = Interpreter(graph)
    for call in input_sets([value.type for value in graph.inputs], 4):
        spoil(session)
        wanted = interpreter.run(*call)
        outputs, values = session.run_layers(*call)
        assert all(compare(a, b) is None for a, b in zip(outputs, wanted, strict=True))
        assert values


@pytest.mark.parametrize("seed", [4, 8])
@pytest.mark.parametrize("io", ["rows", "caller"])
def test_row_by_row(seed: int, io: str) -> None:
    graph = Nets(seed).draw()
    options = Options(io=io, memory="split")
    if io == "caller":  # rows within a run, where whole tensors do not fit
        options = replace(options, ram=compile_graph(graph, HOST, options).arena.size - 8)
    session = Session(compile_graph(graph, HOST, options))
    assert session.program.stream is not None
    for call in input_sets([value.type for value in graph.inputs], 2):
        spoil(session)
        outputs, _ = session.run_layers(*call)
        assert all(compare(a, b) is None for a, b in zip(outputs, Interpreter(graph).run(*call), strict=True))


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_compilers_say_nothing(compiler: str, tmp_path: Path) -> None:
    made = {
        f"n{number}_{make.__name__}": compile_graph(make(), HOST, options, name=f"n{number}_{make.__name__}")
        for number, options in enumerate((*WAYS, Options(memory="split", io="rows")))
        for make in (GRAPHS[2:7] if options.io != "rows" else (Nets(1).draw,))
    }
    objects(tmp_path, {n: text for p in made.values() for n, text in emit(p).items()}, ("-O0",), compiler)


def macros(program: Program) -> dict[str, int]:
    name = program.name.upper()
    text = emit(program)[f"{program.name}.h"]
    return {key: int(value) for key, value in re.findall(rf"#define {name}_(\w+) (\d+)$", text, re.M)}


def test_the_context_keeps_what_lives_between_runs() -> None:
    for make in GRAPHS[:6]:
        for io in WHOLE_IO:
            one = compile_graph(make(), HOST, Options(io=io))
            apart = compile_graph(make(), HOST, Options(io=io, memory="split"))
            assert apart.arena.size == one.arena.size
            kept = macros(apart)["CONTEXT_SIZE"]
            assert kept == max(-(-apart.state_size // 8) * 8, 1)
            assert macros(apart)["ARENA_SIZE"] == max(apart.arena.size, 8)


@pytest.mark.parametrize("io", IO)
def test_without_it_nothing_changes(io: str) -> None:
    model = MODELS["cnn_int8"]
    plain = emit(compile_file(model, HOST, Options(io=io)))
    assert plain == emit(compile_file(model, HOST, Options(io=io, memory="context")))
    assert "_arena" not in plain["cnn_int8.h"]


def test_a_memory_for_each(tmp_path: Path) -> None:
    """The arena is read at every product: it goes into the fast memory, what is kept where there is room."""
    graph = graphs.accumulator()
    arena = compile_graph(graph, HOST, Options(memory="split")).arena.size
    fast = TargetMemory("fast", max(arena, 8), 1, ("data",), "", "FAST")
    slow = TargetMemory("slow", 4096, 5, ("data", "constants"), "", "SLOW")
    program = compile_graph(graph, replace(HOST, memories=(slow, fast)), Options(memory="split"), name="acc")
    assert program.regions is not None
    assert (program.regions.arenas[0].name, program.regions.context.name) == ("fast", "slow")
    use = '#include "acc.h"\nACC_CONTEXT_SECTION acc_context network;\nACC_ARENA_SECTION acc_arena arena;\n'
    found: dict[str, int] = {}
    for path in objects(tmp_path, emit(program) | {"use.c": use}):
        found |= sections(path)
    assert found[".fast.data"] == macros(program)["ARENA_SIZE"]
    assert found[".slow.data"] == macros(program)["CONTEXT_SIZE"]


def test_the_command_line(tmp_path: Path) -> None:
    text = succeed("build", MODELS["digits"], "--memory", "split", "-o", tmp_path)
    assert "digits_run(&network, &arena);" in text and "digits_input_0(&arena)" in text
    header = (tmp_path / "digits.h").read_text(encoding="utf-8")
    assert "no interrupt and no other thread" in " ".join(header.split())
    assert "memory must be one of context, split, parts" in refuse(
        "build", MODELS["digits"], "--memory", "heap"
    )
    text = refuse("export", MODELS["digits"], "--format", "make", "--memory", "split", "-o", tmp_path / "p")
    assert "with --memory split the caller must provide the arena" in text
    with pytest.raises(InputError, match="memory must be one of"):
        Options(memory="apart")


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m0plus"]))
def test_on_cores(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    for options in (WAYS[0], Options(memory="split", io="rows"), Options(memory="split", io="caller")):
        program = compile_file(MODELS["cnn_int8"], target.load(core), options)
        assert verify(program, input_sets([b.type for b in program.inputs], 2)).exact
    one = executed(compile_file(MODELS["cnn_int8"], target.load(core)))
    apart = executed(compile_file(MODELS["cnn_int8"], target.load(core), Options(memory="split")))
    assert apart <= 1.001 * one


MAIN = """
#include <stdio.h>
#include <string.h>
#include "one.h"
#include "two.h"

static __attribute__((section(".dtcm"))) union {
    one_arena one;
    two_arena two;
} arena;
static one_context one;
static two_context two;

int main(void)
{
    one_init(&one);
    two_init(&two);
    for (int call = 0; call < 3; call++) {
        memset(one_input_0(&arena.one), 13 * call + 5, ONE_INPUT_0_SIZE);
        one_run(&one, &arena.one);
        for (unsigned i = 0; i < ONE_OUTPUT_0_SIZE; i++) {
            printf("%d ", ((const signed char *)one_output_0(&arena.one))[i]);
        }
        memset(two_input_0(&arena.two), 29 * call + 3, TWO_INPUT_0_SIZE);
        two_run(&two, &arena.two);
        for (unsigned i = 0; i < TWO_OUTPUT_0_SIZE; i++) {
            printf("%d ", ((const signed char *)two_output_0(&arena.two))[i]);
        }
    }
    printf("%d", sizeof arena == (ONE_ARENA_SIZE > TWO_ARENA_SIZE ? ONE_ARENA_SIZE : TWO_ARENA_SIZE));
    return 0;
}
"""


@pytest.mark.slow
def test_two_models_in_one_arena_on_a_core(tmp_path: Path) -> None:
    """One of them keeps state from run to run, in its own memory."""
    need_tools(*CROSS_TOOLS)
    core, options = target.load("cortex-m4"), Options(memory="split")
    one = compile_graph(Nets(1).draw(), core, options, name="one")
    stream = MODELS["cnn_int8"].parent / "stream_int8.tflite"
    two = compile_file(stream, core, options, name="two")
    assert two.state_size
    script = """
    MEMORY { DTCM (rw) : ORIGIN = 0x20200000, LENGTH = 64K }
    SECTIONS { .dtcm (NOLOAD) : { *(.dtcm) } > DTCM }
    INSERT AFTER .text;
    """
    sources = write(tmp_path, {**emit(one), **emit(two), "main.c": MAIN})
    (tmp_path / "dtcm.ld").write_text(script, encoding="utf-8")
    printed = [int(word) for word in output(tmp_path, sources, "-T", str(tmp_path / "dtcm.ld")).split()]
    wanted: list[int] = []
    interpreters = [Interpreter(program.source) for program in (one, two)]
    for call in range(3):
        for interpreter, byte in zip(interpreters, (13 * call + 5, 29 * call + 3), strict=True):
            (given,) = (
                np.full(v.type.nbytes, byte, np.uint8).view(v.type.dtype.numpy).reshape(v.type.shape)
                for v in interpreter.graph.inputs
            )
            wanted += interpreter.run(given)[0].view(np.int8).ravel().tolist()
    assert printed == [*wanted, 1]
