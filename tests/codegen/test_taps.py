"""The C of taps: as strict as all else, and only where it is asked for."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen.emit import emit, emit_build
from microfold.codegen.model import Model
from microfold.compiler import compile_file, compile_graph
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.options import Options
from microfold.program import Origin, Program
from microfold.simulate.program import model_sources
from microfold.verification.measure import measure
from microfold.verification.tensor_trace.diagnosis import Diagnosis
from microfold.verification.tensor_trace.dump import Dump
from microfold.verification.verify import input_sets
from tests.codegen import graphs
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run, symbols, write
from tests.counts import MODELS
from tests.needs import need_tools

ALL = {"step": True, "weights": "blob", "io": "caller"}

TWO = """
#include <stdio.h>
#include "one.h"
#include "two.h"

static one_context first;
static two_context second;

void one_tap_write(const void *bytes, uint32_t size) { fwrite(bytes, 1, size, stdout); }
void two_tap_write(const void *bytes, uint32_t size) { fwrite(bytes, 1, size, stdout); }

int main(void)
{
    one_init(&first);
    two_init(&second);
    for (int run = 0; run < 2; run++) {
        one_run(&first);
        puts("between");
        two_run(&second);
    }
    return 0;
}
"""


def program_of(make: Callable[[], Graph], core: str = "host", **options: object) -> Program:
    return compile_graph(make(), target.load(core), Options(taps=True, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "options", "macro"),
    [
        (graphs.accumulator, {}, ""),
        (graphs.accumulator, ALL, "_TAP_TICKS()=7u"),
        (graphs.several_outputs, ALL, "_TAP_CHECKSUMS=1"),
    ],
    ids=["plain", "ticks", "checksums"],
)
def test_compilers_are_silent(
    make: Callable[[], Graph], options: dict[str, object], macro: str, tmp_path: Path
) -> None:
    need_tools("gcc", "clang", "g++")
    program = program_of(make, **options)
    sources = write(tmp_path, emit(program))
    defines = [f"-D{program.name.upper()}{macro}"] if macro else []
    for compiler in ("gcc", "clang"):
        run([compiler, *STRICT, *defines, "-fsyntax-only", *sources])
    run(
        ["g++", "-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", *defines, "-fsyntax-only", *sources]
    )


@pytest.mark.slow
def test_the_core_s_compiler_is_silent(tmp_path: Path) -> None:
    need_tools("arm-none-eabi-gcc")
    program = compile_file(MODELS["digits"], target.load("cortex-m4"), Options(taps=True))
    sources = write(tmp_path, emit(program))
    objects = ["arm-none-eabi-gcc", *program.target.cpu_flags, *STRICT, "-Os", "-c", *sources]
    run(objects, tmp_path)
    names = symbols(tmp_path / "digits.o")
    assert {name for name, kind in names.items() if kind == "U"} >= {"digits_tap_write"}
    assert not any(kind in "BbDdC" for kind in names.values()), "there are no writable globals"


def test_without_the_option_there_are_none() -> None:
    files = emit(compile_graph(graphs.accumulator(), target.load("host")))
    assert not any("tap" in text.lower() for text in files.values())


def test_two_models_in_one_program(tmp_path: Path) -> None:
    """Their records come over one line, and text; each is compared by itself."""
    need_tools("cc")
    programs = [
        compile_graph(make(), target.load("host"), Options(taps=True), name=name)
        for name, make in (("one", graphs.chain), ("two", graphs.accumulator))
    ]
    files = {name: text for program in programs for name, text in emit(program).items()}
    sources = write(tmp_path, files | {"main.c": TWO})
    run(["cc", *STRICT, "-O0", f"-I{tmp_path}", *sources, "-lm", "-o", tmp_path / "both"])
    run(["sh", "-c", f"{tmp_path / 'both'} > {tmp_path / 'records'}"])
    dump = Dump((tmp_path / "records").read_bytes())
    assert len(dump.builds) == 2 and not dump.parser.damaged
    assert dump.parser.total - dump.parser.whole == 2 * len("between\n")
    for program in programs:
        build = int(emit_build(program).id.rstrip("u"), 16)
        diagnosis = Diagnosis(program)
        found = [diagnosis.check(each) for each in dump.runs(program, build)]
        assert [result.run.number for result in found] == [0, 1]
        assert not any(result.faults or result.missing or result.unchecked for result in found)


def test_weights_fit_code_with_and_without_taps() -> None:
    """Weights in a file of their own say which build they are of, not whether its code has taps."""
    plain, tapped = (
        emit_build(compile_graph(graphs.chain(), target.load("host"), Options(weights="blob", taps=taps)))
        for taps in (False, True)
    )
    assert plain.blob is not None and tapped.blob is not None
    words = [struct.unpack_from("<8I", blob) for blob in (plain.blob, tapped.blob)]
    assert words[0][:5] == words[1][:5] and plain.blob[32:] == tapped.blob[32:]
    assert words[1][5] == int(tapped.id.rstrip("u"), 16) != words[0][5]


def test_size_of_the_context() -> None:
    plain = compile_graph(graphs.accumulator(), target.load("host"))
    tapped = program_of(graphs.accumulator)
    assert Model(tapped).context_size == Model(plain).context_size + 8


def test_what_runs_and_measures_here_does_so_without() -> None:
    """Nobody here defines the function that a tap calls."""
    program = program_of(graphs.chain)
    assert model_sources(program).files == emit(program.without_trace) != emit(program)
    (call,) = input_sets([buffer.type for buffer in program.inputs], 1)
    assert Session(program).run(*call)[0].shape == (1, 7)


@pytest.mark.slow
def test_sizes_are_those_without() -> None:
    need_tools("arm-none-eabi-gcc")
    program = program_of(graphs.chain, "cortex-m4")
    sizes = measure(program)
    assert sizes is not None and sizes == measure(program.without_trace)


def test_the_text_of_a_build_may_hold_anything(tmp_path: Path) -> None:
    need_tools("cc")
    program = program_of(graphs.chain)
    evil = 'a"b\\c??/*x*/é\n%s' * 12
    origin = Origin(evil, 1, "0" * 64, evil)
    sources = write(tmp_path, emit(replace(program, origin=origin)))
    run(["cc", *STRICT, "-Wcomment", "-Wtrigraphs", "-fsyntax-only", *sources])
