"""Several models in one build: kernels that they share, one arena, one network in it at a time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen.group import arena_size, emit_group
from microfold.codegen.shared import Shared
from microfold.compiler import compile_file, compile_graph
from microfold.errors import GraphError, InputError
from microfold.host.library import FLAGS
from microfold.ir.interpret import Interpreter
from microfold.lowering.one_run import check_one_run
from microfold.lowering.regions import with_shared_regions
from microfold.options import Options
from microfold.plan.arena import ArenaPlan
from microfold.program import Buffer, Program
from microfold.reporting import group as group_module
from microfold.target import Target
from microfold.target.memories import TargetMemory
from microfold.verification.measure import measure, measure_group
from tests import loops
from tests.codegen import graphs
from tests.codegen.toolchain import objects, run, symbols, write
from tests.command_line import refuse, succeed
from tests.counts import MODELS
from tests.docs.test_firmware_page import output
from tests.needs import CROSS_TOOLS, need_tools
from tests.plan.stream.nets import Nets

HOST = target.load("host")
SPLIT = Options(memory="split")
STREAM = MODELS["cnn_int8"].parent / "stream_int8.tflite"

# Runs both by turns, in an arena full of rubbish, and tries to take it twice.
MAIN = """
#include <stdio.h>
#include <string.h>
#include "both.h"

{place}static both_arena arena;
static one_context one;
static two_context two;

int main(void)
{{
    memset(&arena, 0xA5, sizeof arena);
    both_arena_init(&arena);
    one_init(&one);
    two_init(&two);
    for (int call = 0; call < 3; call++) {{
        one_arena *const first = both_take_one(&arena);
        if (first == 0 || both_take_two(&arena) != 0 || both_take_one(&arena) != 0) {{
            return 1;
        }}
        memset(one_input_0(first), 13 * call + 5, ONE_INPUT_0_SIZE);
        one_run(&one, first);
        for (unsigned i = 0; i < ONE_OUTPUT_0_SIZE; i++) {{
            printf("%d ", ((const signed char *)one_output_0(first))[i]);
        }}
        both_give_back(&arena);
        two_arena *const second = both_take_two(&arena);
        if (second == 0 || both_take_one(&arena) != 0) {{
            return 1;
        }}
        memset(second, 0x5A, sizeof *second);
        memset(two_input_0(second), 29 * call + 3, TWO_INPUT_0_SIZE);
        two_run(&two, second);
        for (unsigned i = 0; i < TWO_OUTPUT_0_SIZE; i++) {{
            printf("%d ", ((const signed char *)two_output_0(second))[i]);
        }}
        both_give_back(&arena);
    }}
    printf("%u", (unsigned)sizeof arena);
    return 0;
}}
"""


def pair(core: Target, options: Options = SPLIT) -> list[Program]:
    """Two networks of the same kinds of layers."""
    return [
        compile_file(MODELS["dscnn_bn_int8"], core, options, name="one"),
        compile_file(MODELS["preact_bn_int8"], core, options, name="two"),
    ]


def group(programs: list[Program]) -> Shared:
    return Shared("both", tuple(programs))


def wanted(programs: list[Program]) -> list[int]:
    """What `MAIN` prints of the outputs."""
    found: list[int] = []
    interpreters = [Interpreter(program.source) for program in programs]
    for call in range(3):
        for interpreter, byte in zip(interpreters, (13 * call + 5, 29 * call + 3), strict=True):
            (t,) = (v.type for v in interpreter.graph.inputs)
            given = np.full(t.nbytes, byte, np.uint8).view(t.dtype.numpy).reshape(t.shape)
            found += interpreter.run(given)[0].view(np.int8).ravel().tolist()
    return found


@pytest.mark.parametrize(
    "options",
    [SPLIT, replace(SPLIT, optimize="size", single_file=True), replace(SPLIT, optimize="speed", align=32)],
    ids=lambda o: o.optimize,
)
def test_both_compute_the_same_as_alone(options: Options, tmp_path: Path) -> None:
    programs = pair(HOST, options)
    files = dict(emit_group(group(programs)).files) | {"main.c": MAIN.format(place="")}
    sources = write(tmp_path, files)
    run(["cc", "-std=c99", *FLAGS, *sources, "-lm", "-o", tmp_path / "both"])
    printed = [int(word) for word in run([tmp_path / "both"]).split()]
    assert printed == [*wanted(programs), arena_size(programs)]


@pytest.mark.parametrize(
    "options",
    [SPLIT, replace(SPLIT, single_file=True, weights_section=".both")],
    ids=["files", "single_file"],
)
def test_constants_are_there_once(options: Options, tmp_path: Path) -> None:
    """Two networks of the same layers: all their constants are common, and those of a third are its own."""
    programs = [compile_file(MODELS["cnn_int8"], HOST, options, name=name) for name in ("one", "two")]
    shared = group([*programs, compile_file(MODELS["dscnn_bn_int8"], HOST, options, name="three")])
    files = dict(emit_group(shared).files)
    (weights,) = {program.weight_bytes for program in programs}
    assert weights <= shared.constants.saved == shared.constants.read_by("one")
    assert shared.weight_bytes == weights + shared.programs[2].weight_bytes - shared.constants.read_by(
        "three"
    )
    sources = write(tmp_path, files | {"main.c": MAIN.format(place="")})
    run(["cc", "-std=c99", *FLAGS, *sources, "-lm", "-o", tmp_path / "both"])
    printed = [int(word) for word in run([tmp_path / "both"]).split()]
    assert printed == [*wanted(programs), arena_size(shared.programs)]
    found = {p.stem: symbols(p) for p in objects(tmp_path, files, HOST.cpu_flags, "cc")}
    names = [array.name for array in shared.constants.arrays]
    assert len(names) > 3 and all(found["both_kernels"][name] in "RD" for name in names)
    assert all(found["one"][name] == "U" for name in names)
    assert not any(
        kind in "RrDd" for name in ("one_weights", "two_weights") for kind in found.get(name, {}).values()
    )


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_functions_are_there_once(compiler: str, tmp_path: Path) -> None:
    core = target.load("cortex-m4") if compiler.startswith("arm") else HOST
    options = replace(SPLIT, optimize="size")  # most layers call what others call, too
    three = [*pair(core, options), compile_file(MODELS["cnn_int8"], core, options, name="two_more")]
    shared = group(three)
    build = emit_group(shared)
    assert len(shared.functions) > 1
    assert {len(each.callers) for each in shared.functions.values()} >= {3}
    found = {path.stem: symbols(path) for path in objects(tmp_path, build.files, core.cpu_flags, compiler)}
    for each in shared.functions.values():
        name = each.rendered.name
        assert found["both_kernels"][name] == "T"
        assert all(found[model].get(name) == "U" for model in each.callers)
    # All that others can see begins with a name of the build.
    seen = [name for own in found.values() for name, kind in own.items() if kind in "TDBR"]
    assert len(seen) == len(set(seen))
    assert all(name.startswith(("one_", "two_", "both_")) for name in seen), seen


def test_as_cplusplus(tmp_path: Path) -> None:
    need_tools("g++")
    sources = write(tmp_path, emit_group(group(pair(HOST))).files)
    run(["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-x", "c++", "-fsyntax-only", *sources])


def test_files_of_other_builds_are_refused(tmp_path: Path) -> None:
    need_tools("cc")
    files = dict(emit_group(group(pair(HOST))).files)
    other = dict(emit_group(group(pair(HOST, replace(SPLIT, optimize="size")))).files)
    write(tmp_path, files | {"both_kernels.h": other["both_kernels.h"]})
    for name in ("one", "both_kernels"):
        with pytest.raises(AssertionError, match="are from different builds"):
            run(["cc", "-std=c99", "-fsyntax-only", tmp_path / f"{name}.c"])


def test_the_same_bytes_each_time() -> None:
    assert emit_group(group(pair(HOST))) == emit_group(group(pair(HOST)))


def test_names_are_apart() -> None:
    one, two = pair(HOST)
    with pytest.raises(InputError, match="must have different names; several are named one"):
        emit_group(Shared("both", (one, replace(two, name="one"))))
    for name in ("both", "both_kernels", "both_take"):
        with pytest.raises(InputError, match=f"no model's name may start with .*, both; {name} does"):
            emit_group(Shared("both", (one, replace(two, name=name))))


def test_nothing_in_the_arena_lives_from_run_to_run() -> None:
    programs = [
        *pair(HOST),
        compile_file(STREAM, HOST, SPLIT),
        compile_graph(graphs.accumulator(), HOST, SPLIT),
        compile_graph(graphs.swapped_states(), HOST, SPLIT),
        compile_graph(graphs.several_outputs(), HOST, replace(SPLIT, io="caller")),
        compile_graph(loops.branch(), HOST, SPLIT),
        compile_graph(loops.bounded(), HOST, SPLIT),
        compile_graph(Nets(3).draw(), HOST, replace(SPLIT, io="rows")),
    ]
    for program in programs:
        check_one_run(program)


def test_what_would_live_from_run_to_run_is_found() -> None:
    """A layer reads where nobody has written; state is taken from there; an output lies there."""
    program = compile_file(STREAM, HOST, SPLIT)
    beyond = program.arena.size
    arena = ArenaPlan(program.arena.offsets, beyond + 1024 * 64, 0)

    def elsewhere(buffer: Buffer) -> Buffer:
        return Buffer(buffer.value, "arena", beyond)

    first, *rest = program.layers
    moved = replace(first, inputs=tuple(map(elsewhere, first.inputs)))
    slot = program.state[0]
    assert slot.next is not None
    for wrong, who in (
        (replace(program, layers=(moved, *rest)), first.name),
        (replace(program, outputs=tuple(map(elsewhere, program.outputs))), "the caller"),
        (replace(program, state=(replace(slot, next=elsewhere(slot.next)),)), "the end of the run"),
    ):
        with pytest.raises(GraphError, match=f"{who} reads .* before the run has written it"):
            check_one_run(replace(wrong, arena=arena))


def test_memories_hold_all_of_them() -> None:
    """The arena once, both contexts, the constants of both."""
    fast = TargetMemory("fast", 1 << 16, 1, ("data",), "", "FAST")
    rom = TargetMemory("rom", 1 << 20, 5, ("constants",), "", "ROM")
    programs = pair(replace(HOST, memories=(fast, rom)))
    placed = with_shared_regions(programs, arena_size(programs))
    plans = [program.regions.plan for program in placed if program.regions is not None]
    assert plans[0] is plans[1]
    kept = sum(max(-(-program.state_size // 8) * 8, 8) for program in programs)
    assert plans[0].used(fast, "data") == arena_size(programs) + kept
    assert plans[0].used(rom, "constants") >= sum(program.weight_bytes for program in programs)
    small = replace(fast, size=arena_size(programs))
    with pytest.raises(InputError, match=r"must fit"):
        with_shared_regions(pair(replace(HOST, memories=(small, rom))), arena_size(programs))
    assert "both.ld" in emit_group(group(placed)).files


@pytest.mark.slow
def test_the_command_line(tmp_path: Path) -> None:
    import jsonschema  # takes seconds, which processes that only collect tests need not wait

    arguments = ("build", MODELS["cnn_int8"], STREAM, "--name", "both", "-o", tmp_path)
    text = succeed(*arguments)
    assert "both_take_cnn_int8(&arena)" in text and "plus an owner word" in text
    stored = json.loads((tmp_path / "both_report.json").read_text(encoding="utf-8"))
    schema = Path(group_module.__file__).parent / "group.schema.json"
    jsonschema.validate(stored, json.loads(schema.read_text(encoding="utf-8")))
    assert json.loads(succeed(*arguments, "--json")) == stored
    alone = [each["ram"]["arena"] for each in stored["models"]]
    assert stored["ram"]["arena"] == max(alone) < stored["ram"]["apart"]
    header = (tmp_path / "cnn_int8.h").read_text(encoding="utf-8")
    command = " ".join(re.sub(r"\n \*", " ", header).split())
    assert (
        "microfold build cnn_int8.tflite stream_int8.tflite --target host --name=both --memory=split"
        in command
    )
    page = succeed("build", MODELS["digits"], STREAM, "--html", "-o", tmp_path / "pages")
    assert page
    overview = (tmp_path / "pages" / "models_report.html").read_text(encoding="utf-8")
    for name in ("digits", "stream_int8"):
        assert (
            f'href="{name}_report.html"' in overview
            and (tmp_path / "pages" / f"{name}_report.html").is_file()
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("io", "line"),
    [
        ("arena", "cnn_int8_run(&network, taken);"),
        ("caller", "cnn_int8_run(&network, taken, input_0, output_0);"),
        ("rows", "while (cnn_int8_push_rows(&network, taken, row) == 0)"),
    ],
)
def test_how_one_of_them_is_run(io: str, line: str, tmp_path: Path) -> None:
    text = succeed("build", MODELS["cnn_int8"], MODELS["digits"], "--io", io, "-o", tmp_path)
    assert line in text and ("cnn_int8_begin(&network);" in text) == (io == "rows")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--taps",), "--taps applies to a single model"),
        (("--memory", "context"), "--memory context uses one arena for each model"),
        (("--weights", "blob"), "does not support kernels that several models share"),
        (("--place", "a=.b"), "--place applies to a layer of a single model"),
        (("--signature", "x"), "--signature applies to a single model"),
    ],
)
def test_options_of_one_model_are_refused(given: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in refuse("build", MODELS["cnn_int8"], STREAM, *given, "-o", tmp_path)


@pytest.mark.slow
def test_on_a_core(tmp_path: Path) -> None:
    """Bits and flash, as linked: the arena in a memory of its own."""
    need_tools(*CROSS_TOOLS)
    core, options = target.load("cortex-m4"), replace(SPLIT, optimize="size")
    programs = [*pair(core, options), compile_file(MODELS["digits"], core, options, name="three")]
    build = emit_group(group(programs))
    script = """
    MEMORY { DTCM (rw) : ORIGIN = 0x20200000, LENGTH = 64K }
    SECTIONS { .dtcm (NOLOAD) : { *(.dtcm) } > DTCM }
    INSERT AFTER .text;
    """
    place = '__attribute__((section(".dtcm"))) '
    sources = write(tmp_path, dict(build.files) | {"main.c": MAIN.format(place=place)})
    (tmp_path / "dtcm.ld").write_text(script, encoding="utf-8")
    printed = output(tmp_path, sources, "-T", str(tmp_path / "dtcm.ld"))
    assert [int(word) for word in printed.split()] == [*wanted(programs[:2]), arena_size(programs)]
    together = measure_group(group(programs), build)
    alone = [measure(program) for program in programs]
    assert together is not None and together.stack is not None and together.library is not None
    code = sum(each.code for each in alone if each is not None)
    assert together.kernels > 0
    assert sum(together.models) + together.kernels < code
