"""`--align`: arena, inputs and outputs start at whole cache lines, and share none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph
from microfold.errors import InputError
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.types import DType
from microfold.options import IO, WHOLE_IO, Options
from microfold.program import Program
from microfold.reporting.data import build_report
from microfold.verification.verify import compare, input_sets
from tests.codegen import graphs
from tests.codegen.toolchain import objects, write
from tests.command_line import refuse, succeed
from tests.counts import MODELS
from tests.docs.test_firmware_page import MEMORIES, main, output
from tests.kernels.random_networks import random_network
from tests.needs import CROSS_TOOLS, need_tools

HOST = target.load("host")


def check_places(program: Program) -> None:
    """All that calls read and write in the arena lies in lines of its own, as far as it lives together."""
    alignment = program.options.align
    assert program.arena.size % alignment == 0
    for storage, offset in program.arena.offsets.items():
        assert offset % alignment == 0, storage.label
    buffers = [*program.inputs, *program.outputs]
    assert all(b.offset % alignment == 0 for b in buffers if b.region == "arena")


@pytest.mark.parametrize("align", [16, 32, 64])
@pytest.mark.parametrize("io", WHOLE_IO)
@pytest.mark.parametrize(
    "make",
    [graphs.chain, graphs.several_outputs, graphs.two_inputs, graphs.accumulator, graphs.swapped_states],
)
def test_calls_equal_the_interpreter(make: Callable[[], Graph], io: str, align: int) -> None:
    graph = make()
    session = Session(compile_graph(graph, HOST, Options(io=io, align=align)))
    check_places(session.program)
    interpreter = Interpreter(graph)
    for call in input_sets([value.type for value in graph.inputs], 4):
        for actual, wanted in zip(session.run(*call), interpreter.run(*call), strict=True):
            assert compare(actual, wanted) is None
        outputs, _ = session.run_layers(*call)
        assert all(compare(a, b) is None for a, b in zip(outputs, interpreter.run(*call), strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_random_networks(seed: int) -> None:
    graph = random_network(seed, DType.INT8)
    session = Session(compile_graph(graph, HOST, Options(align=64), name="net"))
    check_places(session.program)
    plain = compile_graph(graph, HOST, name="net")
    assert plain.arena.size <= session.program.arena.size
    for call in input_sets([value.type for value in graph.inputs], 2):
        for actual, wanted in zip(session.run(*call), Interpreter(graph).run(*call), strict=True):
            assert compare(actual, wanted) is None


@pytest.mark.parametrize("io", IO)
def test_headers_and_report_state_it(io: str) -> None:
    model = MODELS["cnn_int8"]
    plain = compile_file(model, HOST, Options(io=io))
    assert emit(plain) == emit(compile_file(model, HOST, Options(io=io, align=8)))
    assert "_ALIGNED" not in emit(plain)["cnn_int8.h"]
    program = compile_file(model, HOST, Options(io=io, align=32))
    check_places(program)
    header = emit(program)["cnn_int8.h"]
    macros = dict(re.findall(r"#define CNN_INT8_(\w+) (\d+)", header))
    assert macros["ALIGNMENT"] == "32"
    for kind, buffers in (("INPUT", program.inputs), ("OUTPUT", program.outputs)):
        for index, buffer in enumerate(buffers):
            size = int(macros[f"{kind}_{index}_ALIGNED_SIZE"])
            assert size % 32 == 0 and 0 <= size - buffer.type.nbytes < 32
    assert int(macros["CONTEXT_SIZE"]) % 32 == 0
    assert build_report(program, None).options.align == 32


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("single_file", [False, True])
def test_compilers_take_it(compiler: str, single_file: bool, tmp_path: Path) -> None:
    options = Options(align=32, single_file=single_file)
    objects(tmp_path, emit(compile_file(MODELS["digits"], HOST, options)), compiler=compiler)


@pytest.mark.parametrize("align", [4, 24, 128])
def test_other_alignments_are_refused(align: int) -> None:
    with pytest.raises(InputError, match=f"align must be one of 8, 16, 32, 64; got {align}"):
        Options(align=align)


def test_the_command_line(tmp_path: Path) -> None:
    text = succeed("build", MODELS["digits"], "--align", "32", "-o", tmp_path)
    assert "aligned to 32" in text
    assert "--align=32" in (tmp_path / "digits.h").read_text(encoding="utf-8")
    assert "must be one of 8, 16, 32, 64" in refuse(
        "build", MODELS["digits"], "--align", "12", "-o", tmp_path
    )


@pytest.mark.slow
def test_on_a_core(tmp_path: Path) -> None:
    """In a memory of its own, behind what would misalign it."""
    need_tools(*CROSS_TOOLS)
    body = """
        memcpy(kws_input_0(&network), input, sizeof input);
        kws_run(&network);
        printf("%u %u %u", (unsigned)((uintptr_t)&network % KWS_ALIGNMENT),
               (unsigned)((uintptr_t)kws_input_0(&network) % KWS_ALIGNMENT),
               (unsigned)((uintptr_t)kws_output_0(&network) % KWS_ALIGNMENT));
        for (uint32_t i = 0; i < KWS_OUTPUT_0_LENGTH; i++) printf(" %d", kws_output_0(&network)[i]);
        printf(" %d", before[0]);
    """
    section = '__attribute__((section(".dtcm")))'
    variables = f"static {section} uint8_t before[3];\nstatic {section} kws_context network;"
    script = MEMORIES + "SECTIONS { .dtcm (NOLOAD) : { *(.dtcm) } > DTCM }\nINSERT AFTER .text;\n"
    found: dict[int, list[str]] = {}
    for align in (8, 64):
        program = compile_file(MODELS["digits"], target.load("cortex-m4"), Options(align=align), name="kws")
        text = main(body if align > 8 else body.replace("KWS_ALIGNMENT", "8"), "", variables)
        sources = write(tmp_path / str(align), emit(program) | {"main.c": text})
        (tmp_path / str(align) / "dtcm.ld").write_text(script, encoding="utf-8")
        found[align] = output(
            tmp_path / str(align), sources, "-T", str(tmp_path / str(align) / "dtcm.ld")
        ).split()
    assert found[64][:3] == ["0", "0", "0"]
    assert found[64][3:-1] == found[8][3:-1]
