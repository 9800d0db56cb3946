"""Memories with `prefetch`: the firmware copies constants into the arena while the layer before runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen.emit import emit
from microfold.codegen.fetching import fetched_bytes, fetched_offsets
from microfold.compiler import compile_file, compile_graph
from microfold.errors import GraphError, InputError, TargetError
from microfold.host.session import Session
from microfold.options import Options
from microfold.plan.arena import ArenaPlan
from microfold.plan.check import check_plan
from microfold.plan.regions import RegionItem, RegionPlan, check_regions, plan_regions
from microfold.program import Program
from microfold.target import Target
from microfold.target.memories import TargetMemory
from microfold.verification.measure import measure
from microfold.verification.verify import input_sets, verify
from tests import loops
from tests.codegen.toolchain import objects, run, write
from tests.command_line import refuse, succeed
from tests.counts import MODELS
from tests.docs.test_firmware_page import main, output
from tests.needs import CROSS_TOOLS, need_tools
from tests.plan.stream.nets import Nets
from tests.reporting.test_schema import faults

RAM = TargetMemory("ram", 65536, 1, ("data",), "", "RAM")
QSPI = TargetMemory("qspi", 1 << 20, 20, ("constants",), "", "QSPI", prefetch=True)
ROM = TargetMemory("rom", 1 << 20, 3, ("constants",), "", "ROM")
SMALL = replace(ROM, size=1200)
MODEL = MODELS["digits"]
HOST = target.load("host")


def having(*memories: TargetMemory, core: Target = HOST) -> Target:
    return replace(core, memories=memories)


def digits(core: Target, options: Options | None = None) -> Program:
    return compile_file(MODEL, core, options, name="kws")


def fetched(program: Program) -> list[int]:
    return [layer.index for layer in program.layers if fetched_bytes(program, layer)]


WAYS = {
    "plain": Options(),
    "step": Options(step=True, single_file=True),
    "caller": Options(io="caller", align=32),
    "split": Options(memory="split", optimize="size"),
    "speed": Options(optimize="speed"),
}


@pytest.mark.parametrize("rom", [0, 1200], ids=["all", "some"])
@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS.keys())
def test_the_same_bits_however_late_copies_are(options: Options, rom: int) -> None:
    """Whoever stands in for the firmware writes rubbish first, and copies when somebody waits."""
    memories = (RAM, QSPI, replace(ROM, size=rom)) if rom else (RAM, QSPI)
    plain, session = Session(digits(HOST, options)), Session(digits(having(*memories), options))
    found = fetched(session.program)
    constant = [layer.index for layer in session.program.layers if layer.call.constants]
    assert found and (found == constant if not rom else len(found) < len(constant))
    for call in input_sets([buffer.type for buffer in plain.program.inputs], 3):
        outputs, values = session.run_layers(*call)
        assert all((a == b).all() for a, b in zip(outputs, plain.run(*call), strict=True))
        assert values


MAIN = """
#include <stdio.h>
#include <string.h>
#include "kws.h"

static kws_context network;

void kws_prefetch(void *to, const void *from, uint32_t bytes)
{
    PREFETCH;
}

void kws_prefetch_wait(void)
{
}

int main(void)
{
    kws_init(&network);
    memset(kws_input_0(&network), 1, KWS_INPUT_0_SIZE);
    kws_run(&network);
    for (unsigned i = 0; i < KWS_OUTPUT_0_LENGTH; i++) {
        printf("%d ", kws_output_0(&network)[i]);
    }
    return 0;
}
"""


def test_without_what_is_copied_it_is_rubbish(tmp_path: Path) -> None:
    """The code reads the copies, and nothing but them."""
    need_tools("cc")
    files = emit(digits(having(RAM, QSPI)))
    copy, rubbish = "memcpy(to, from, bytes)", "(void)from; memset(to, 0x5A, bytes)"
    printed: list[str] = []
    for number, statement in enumerate((copy, rubbish)):
        sources = write(tmp_path / str(number), files | {"main.c": MAIN})
        image = tmp_path / f"image{number}"
        run(["cc", "-std=c99", f"-DPREFETCH={statement}", *sources, "-lm", "-o", image])
        printed.append(run([image]))
    sources = write(tmp_path / "plain", emit(digits(HOST)) | {"main.c": MAIN})
    run(["cc", "-std=c99", f"-DPREFETCH={rubbish}", *sources, "-lm", "-o", tmp_path / "plain.elf"])
    assert printed[0] == run([tmp_path / "plain.elf"]) != printed[1]


def test_where_constants_fit_elsewhere_nothing_changes() -> None:
    """But for the linker's fragment."""
    plain, more = emit(digits(having(RAM, ROM))), emit(digits(having(RAM, ROM, QSPI)))
    kept = {name: re.sub("0x[0-9a-f]{8}u", "", text) for name, text in more.items() if name != "kws.ld"}
    assert kept == {n: re.sub("0x[0-9a-f]{8}u", "", text) for n, text in plain.items() if n != "kws.ld"}
    assert "prefetch" not in "".join(plain.values())


def test_two_layers_have_their_constants_there_at_a_time() -> None:
    program = digits(having(RAM, QSPI))
    plan = program.arena
    blocks = {b.label: b for b in plan.offsets if b.label.startswith("constants of call")}
    for layer in program.layers:
        size = fetched_bytes(program, layer)
        if not size:
            continue
        block = blocks[f"constants of call {layer.index}"]
        assert (block.first, block.last) == (max(layer.index - 1, 0), layer.index)
        assert block.size >= size and plan.offsets[block] == layer.fetched
        ends = [0]
        for offset, nbytes in fetched_offsets(program, layer).values():
            assert offset % 8 == 0 and offset >= ends[-1]
            ends.append(offset + nbytes)
        assert ends[-1] <= size
    check_plan([*plan.offsets], plan)
    # Every place that another layer's constants would have with these is found.
    one, other = (blocks[f"constants of call {index}"] for index in fetched(program)[:2])
    moved = ArenaPlan({**plan.offsets, one: plan.offsets[other]}, plan.size, 0, plan.overlaps)
    with pytest.raises(GraphError, match="share bytes"):
        check_plan([*plan.offsets], moved)


def test_what_the_core_must_read_itself_is_not_there() -> None:
    """Constants of loops and of what runs by rows are read again and again."""
    for graph, options in (
        (loops.bounded(), Options()),
        (Nets(1).draw(), Options(io="rows")),
    ):
        plain = compile_graph(graph, HOST, options)
        core = having(RAM, QSPI, ROM)
        assert not fetched(compile_graph(graph, core, options))
        if plain.weight_bytes:
            with pytest.raises(InputError, match="requires a memory for constants"):
                compile_graph(graph, having(RAM, QSPI), options)
    item = RegionItem("table", 8, 1, "constants")
    with pytest.raises(GraphError, match="table is in qspi, but is not prefetched"):
        check_regions([item], RegionPlan((QSPI,), {item: QSPI}))
    check_regions([copied := replace(item, direct=False)], plan_regions([copied], (QSPI,)))


def test_room_that_there_is_not() -> None:
    needed = digits(having(RAM, QSPI)).arena.size
    plain = digits(HOST).arena.size
    assert needed > plain
    assert digits(having(RAM, QSPI), Options(ram=needed)).arena.size <= needed
    with pytest.raises(InputError, match="with room for prefetched constants, they need"):
        digits(having(RAM, QSPI), Options(ram=plain))
    with pytest.raises(InputError, match="the context must fit into one memory"):
        digits(having(replace(RAM, size=needed - 8), QSPI))


@pytest.mark.slow
def test_rows_do_not_prefetch() -> None:
    """The refusal says so, and does not call the memory free."""
    by_rows = digits(HOST, Options(io="rows"))
    limit = Options(io="caller", ram=by_rows.arena.size)
    assert digits(HOST, limit).stream is not None
    for options, way in ((by_rows.options, "--io rows"), (limit, "a --ram below that of whole tensors")):
        for memories in ((RAM, QSPI), (RAM, QSPI, SMALL)):
            with pytest.raises(InputError) as refused:
                digits(having(*memories), options)
            text = f"with layers by rows, nothing is prefetched: remove {way}, or prefetch of qspi"
            assert text in str(refused.value) and "qspi 1048576" not in str(refused.value)
    with pytest.raises(InputError) as refused:
        digits(having(replace(RAM, size=8), QSPI, ROM), Options(io="rows"))
    assert "nothing is prefetched" not in str(refused.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"prefetch": 1}, "prefetch must be true or false"),
        ({"prefetch": True, "use": ["data", "constants"]}, "must have the use constants alone"),
        ({"prefetch": True, "load": "rom"}, "must have the use constants alone, and no load"),
        ({"size": True}, "size must be a number of bytes"),
    ],
)
def test_targets_that_are_refused(tmp_path: Path, table: dict[str, object], message: str) -> None:
    rom = {"size": 100, "cycles": 1, "use": ["constants"]}
    loaded = {"size": 9, "cycles": 1, "use": ["constants"], "load": "qspi"}
    for memories, wanted in (
        ({"rom": rom, "qspi": rom | table}, message),
        ({"fast": loaded, "qspi": rom | {"prefetch": True}}, "must name a non-volatile memory"),
    ):
        lines = ["features = []"]
        for name, keys in memories.items():
            lines += [f"[memory.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
        (tmp_path / "board.toml").write_text("\n".join(lines))
        with pytest.raises(TargetError, match=wanted):
            target.load(str(tmp_path / "board.toml"))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_compilers_say_nothing(compiler: str, tmp_path: Path) -> None:
    core = target.load("cortex-m4") if compiler.startswith("arm") else HOST
    for name, options in WAYS.items():
        files = emit(digits(having(RAM, QSPI, SMALL, core=core), options))
        objects(tmp_path / name, files, (*core.cpu_flags, "-O1"), compiler)


BOARD = """
features = ["dsp", "fpu"]
compiler = "arm-none-eabi-gcc"
cpu_flags = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
[memory.dtcm]
size = 65536
cycles = 1
use = ["data"]
[memory.flash]
size = 1024
cycles = 3
use = ["constants"]
region = "ROM"
[memory.qspi]
size = 1048576
cycles = 20
use = ["constants"]
prefetch = true
"""


def test_the_command_line(tmp_path: Path) -> None:
    board = tmp_path / "board.toml"
    board.write_text(BOARD, encoding="utf-8")
    text = succeed("build", MODEL, "-t", board, "-o", tmp_path, "--html")
    assert "Define digits_prefetch and digits_prefetch_wait" in text
    report = json.loads((tmp_path / "digits_report.json").read_text(encoding="utf-8"))
    assert not faults(report)
    copied = sum(layer["fetched"] for layer in report["layers"])
    (qspi,) = (memory for memory in report["memories"] if memory["prefetch"])
    assert copied >= qspi["constants"] > 0 and f"{copied:,} bytes" in text
    assert report["flash"]["library"] is None or report["ram"]["stack"]
    assert {"constants"} < {block["kind"] for block in report["blocks"]}
    message = refuse("build", MODEL, MODELS["cnn_int8"], "-t", board, "-o", tmp_path)
    assert "qspi is for prefetching: build the models one by one" in message


@pytest.mark.slow
def test_on_a_core(tmp_path: Path) -> None:
    """All lies in the memories of a board; the wait is what brings the bytes."""
    need_tools(*CROSS_TOOLS)
    core = target.load("cortex-m4")
    program = digits(having(RAM, QSPI, SMALL, core=core))
    assert fetched(program)
    assert verify(program, input_sets([b.type for b in program.inputs], 2)).exact
    measured, alone = measure(program), measure(digits(core))
    assert measured is not None and alone is not None and measured.stack is not None
    # What stands in for the firmware does not count.
    assert measured.library == alone.library and measured.padding == alone.padding
    (tmp_path / "board.toml").write_text(BOARD, encoding="utf-8")
    placed = digits(target.load(str(tmp_path / "board.toml")))
    memory = """
    MEMORY
    {
      DTCM (rw) : ORIGIN = 0x20200000, LENGTH = 64K
      ROM  (r)  : ORIGIN = 0x00100000, LENGTH = 1K
      QSPI (r)  : ORIGIN = 0x00200000, LENGTH = 1M
    }
    """
    late = """
    static struct { void *to; const void *from; uint32_t bytes; } begun[32];
    static uint32_t count;
    static unsigned outside;
    void kws_prefetch(void *to, const void *from, uint32_t bytes)
    {
        begun[count].to = to; begun[count].from = from; begun[count++].bytes = bytes;
        outside += (uintptr_t)from < 0x00200000u || (uintptr_t)from >= 0x00300000u;
        outside += (uintptr_t)to < 0x20200000u || (uintptr_t)to >= 0x20210000u;
        memset(to, 0x5A, bytes);
    }
    void kws_prefetch_wait(void)
    {
        while (COPIES && count != 0) {
            count--;
            memcpy(begun[count].to, begun[count].from, begun[count].bytes);
        }
        count = 0;
    }
    static KWS_CONTEXT_SECTION kws_context network;
    """
    body = """
        memcpy(kws_input_0(&network), input, sizeof input);
        kws_run(&network);
        printf("%u", outside);
        for (uint32_t i = 0; i < KWS_OUTPUT_0_LENGTH; i++) printf(" %d", kws_output_0(&network)[i]);
    """
    text = main(body, "", late).replace("static kws_context whole;", "#define whole network")
    sources = write(tmp_path, emit(placed) | {"main.c": text})
    fragment = tmp_path / "kws.ld"
    fragment.write_text(memory + fragment.read_text(encoding="utf-8"), encoding="utf-8")
    good = output(tmp_path, sources, "-DCOPIES=1", "-T", str(fragment))
    plain = tmp_path / "plain"
    plain_text = main(body.replace("outside", "0u"), "", "static kws_context network;")
    assert good == output(plain, write(plain, emit(digits(core)) | {"main.c": plain_text}))
    assert good != output(tmp_path, sources, "-DCOPIES=0", "-T", str(fragment))
    table = run(["arm-none-eabi-objdump", "-h", tmp_path / "image.elf"])
    sizes = {name: int(size, 16) for name, size in re.findall(r" (\.\w+\.\w+) +(\w+)", table)}
    assert sizes[".qspi.constants"] > 0 and sizes[".dtcm.data"] >= placed.arena.size
