"""A model in the memories of a board: sections, linker script, report; as the page on memories says it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file
from microfold.errors import InputError
from microfold.host.session import Session
from microfold.options import Options
from microfold.program import Program
from microfold.target import Target
from microfold.target.memories import TargetMemory
from microfold.verification.verify import input_sets
from tests.codegen.toolchain import objects, run, sections, write
from tests.command_line import succeed
from tests.counts import MODELS
from tests.docs.test_firmware_page import main, output
from tests.needs import CROSS_TOOLS, need_tools

PAGE = Path(__file__).resolve().parents[2] / "docs" / "memory-regions.md"
# Parts of the simulated board's memories stand for those of the page.
MEMORY = """
MEMORY
{
  DTCM (rw) : ORIGIN = 0x20200000, LENGTH = 4K
  ROM  (r)  : ORIGIN = 0x00100000, LENGTH = 256K
  QSPI (r)  : ORIGIN = 0x00200000, LENGTH = 1M
}
"""


def board(folder: Path) -> Target:
    """The target of the page."""
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    path = folder / "board.toml"
    path.write_text(text, encoding="utf-8")
    return target.load(str(path))


def on_host(*memories: TargetMemory) -> Target:
    return replace(target.load("host"), memories=memories)


def digits(core: Target, options: Options | None = None) -> Program:
    return compile_file(MODELS["digits"], core, options, name="kws")


def sizes(paths: list[Path]) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in paths:
        for name, size in sections(path).items():
            found[name] = found.get(name, 0) + size
    return found


RAM = TargetMemory("ram", 16384, 1, ("data",), "", "RAM")
ROM = TargetMemory("rom", 1 << 20, 5, ("constants",), "", "ROM")
CACHE = TargetMemory("cache", 2048, 2, ("constants", "code"), "rom", "CACHE")


def test_without_memories_the_code_is_the_same() -> None:
    plain, placed = emit(digits(target.load("host"))), emit(digits(on_host(RAM, ROM)))
    assert placed.keys() - plain.keys() == {"kws.ld"}

    # Of the build, of what the firmware defines, and of sections.
    differs = r"BUILD_ID|CONTEXT_SECTION|context network;|PLACED|WEIGHTS_SECTION"
    differs += r"|section attribute|planned|^#(ifndef|endif)|^$"

    def code(text: str) -> list[str]:
        return [line for line in text.splitlines() if not re.search(differs, line)]

    for name, text in plain.items():
        assert "PLACED" not in text and "CONTEXT_SECTION" not in text
        assert code(text) == code(placed[name])


@pytest.mark.parametrize(
    ("compiler", "single_file"), [("gcc", False), ("clang", True), ("arm-none-eabi-gcc", False)]
)
def test_sections(compiler: str, single_file: bool, tmp_path: Path) -> None:
    cross = compiler == "arm-none-eabi-gcc"
    core = replace(target.load("cortex-m4" if cross else "host"), memories=(RAM, ROM, CACHE))
    program = digits(core, Options(single_file=single_file))
    files = emit(program) | {"use.c": '#include "kws.h"\nKWS_CONTEXT_SECTION kws_context kws_network;\n'}
    found = sizes(objects(tmp_path, files, (*core.cpu_flags, "-O2"), compiler))
    assert program.regions is not None
    plan = program.regions.plan
    assert found[".ram.data"] == plan.used(RAM, "data")
    for memory in (ROM, CACHE):
        assert found[f".{memory.name}.constants"] > 0
        # GCC for the host aligns long arrays to vectors.
        if compiler != "gcc":
            assert found[f".{memory.name}.constants"] <= plan.used(memory, "constants") <= memory.size


def test_the_firmware_places_what_options_name() -> None:
    for options in (Options(weights="blob"), Options(weights_section=".flash")):
        regions = digits(on_host(RAM), options).regions
        assert regions is not None and not regions.constants
    name = next(layer.name for layer in digits(on_host(RAM, ROM)).layers if layer.call.constants)
    text = emit(digits(on_host(RAM, ROM), Options(place=(f"{name}=.own",))))["kws_weights.c"]
    assert 'KWS_PLACED(".own")' in text and 'KWS_PLACED(".rom.constants")' in text


def test_placed_constants_compute_the_same() -> None:
    plain, placed = Session(digits(target.load("host"))), Session(digits(on_host(RAM, ROM, CACHE)))
    for call in input_sets([buffer.type for buffer in plain.program.inputs], 2):
        assert all((a == b).all() for a, b in zip(plain.run(*call), placed.run(*call), strict=True))


def test_the_context_counts_whole_with_state_and_rows() -> None:
    made = MODELS["cnn_int8"].parent
    for name, io in (("stream_int8", "arena"), ("cnn_int8", "rows")):
        program = compile_file(made / f"{name}.tflite", on_host(RAM, ROM, CACHE), Options(io=io))
        text = emit(program)[f"{name}.h"]
        assert program.regions is not None
        # The whole context counts, also its state and how far a run is.
        (size,) = re.findall(r"_CONTEXT_SIZE (\d+)", text)
        assert program.regions.plan.used(RAM, "data") == int(size) >= program.arena.size + program.state_size


def test_a_context_that_fits_nowhere() -> None:
    with pytest.raises(InputError, match=r"the context must fit into one memory for data; it has \d+ bytes"):
        digits(on_host(replace(RAM, size=64), ROM))


def test_build_says_how_full_the_memories_are(tmp_path: Path) -> None:
    board(tmp_path)
    text = succeed("build", MODELS["digits"], "-t", tmp_path / "board.toml", "-o", tmp_path, "--html")
    assert re.search(r"memories of the target\n.*\n(.*\n)*dtcm +1 ", text)
    assert "static DIGITS_CONTEXT_SECTION digits_context network;" in text
    assert "Memories of the target" in (tmp_path / "digits_report.html").read_text(encoding="utf-8")
    assert "> DTCM AT > ROM" in (tmp_path / "digits.ld").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_on_a_core(tmp_path: Path) -> None:
    """Constants are copied into the fast memory, and all lies where the report says."""
    need_tools(*CROSS_TOOLS)
    page = PAGE.read_text(encoding="utf-8")
    files = dict(re.findall(r"^```c\n/\* (\w+\.[ch]) \*/\n(.*?)^```$", page, re.M | re.S))
    assert "static KWS_CONTEXT_SECTION kws_context network;" in page
    body = """
        memcpy(kws_input_0(&network), input, sizeof input);
        kws_run(&network);
        printf("%p", (void *)&network);
        for (uint32_t i = 0; i < KWS_OUTPUT_0_LENGTH; i++) printf(" %d", kws_output_0(&network)[i]);
    """
    variables = "static KWS_CONTEXT_SECTION kws_context network;"
    text = main(body, '#include "copy.h"', variables).replace(
        "kws_init(&whole)", "copy_constants();\n    kws_init(&whole)"
    )
    program = digits(board(tmp_path))
    sources = write(tmp_path, emit(program) | files | {"main.c": text})
    fragment = tmp_path / "kws.ld"
    fragment.write_text(MEMORY + fragment.read_text(encoding="utf-8"), encoding="utf-8")
    address, *numbers = output(tmp_path, sources, "-T", str(fragment)).split()
    plain = tmp_path / "plain"
    plain_text = main(body, "", "static kws_context network;")
    sources = write(plain, emit(digits(target.load("cortex-m4"))) | {"main.c": plain_text})
    assert output(plain, sources).split()[1:] == numbers
    assert address == "0x20200000"
    table = run(["arm-none-eabi-objdump", "-h", tmp_path / "image.elf"])
    found = {name: int(size, 16) for name, size in re.findall(r" (\.\w+\.\w+) +(\w+)", table)}
    assert program.regions is not None
    plan = program.regions.plan
    dtcm, flash, qspi = plan.memories
    assert found[".dtcm.data"] == plan.used(dtcm, "data")
    assert 0 < found[".dtcm.constants"] <= plan.used(dtcm, "constants")
    assert 0 < found[".flash.constants"] <= plan.used(flash, "constants")
    assert plan.used(qspi, "constants") == found.get(".qspi.constants", 0) == 0
