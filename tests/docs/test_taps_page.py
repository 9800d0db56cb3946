"""The C of the page on taps compiles."""

from __future__ import annotations

import re
from pathlib import Path

from microfold import target
from microfold.codegen.emit import emit
from microfold.codegen.tensor_trace import FORMAT, MAGIC, Role
from microfold.compiler import compile_file
from microfold.options import Options
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run, write
from tests.counts import MODELS
from tests.needs import need_tools

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "taps.md").read_text(encoding="utf-8")

BOARD = "#include <stdint.h>\nvoid uart_send(uint8_t byte);\n"
RTT = """
#define SEGGER_RTT_MODE_BLOCK_IF_FIFO_FULL 2u
int SEGGER_RTT_ConfigUpBuffer(unsigned index, const char *name, void *buffer, unsigned size, unsigned flags);
unsigned SEGGER_RTT_Write(unsigned index, const void *buffer, unsigned size);
void taps_init(void);
"""


def test_the_examples_compile(tmp_path: Path) -> None:
    need_tools("cc")
    program = compile_file(MODELS["digits"], target.load("host"), Options(taps=True), name="kws")
    files = dict(re.findall(r"^```c\n/\* (\w+\.[ch]) \*/\n(.*?)^```$", PAGE, re.M | re.S))
    assert {"uart.c", "rtt.c", "file.c", "ticks.h"} == set(files)
    write(tmp_path, emit(program) | files | {"board.h": BOARD, "SEGGER_RTT.h": RTT})
    sources = [tmp_path / name for name in ("kws.c", "uart.c", "rtt.c", "file.c")]
    run(["cc", *STRICT, '-DKWS_HOOKS="ticks.h"', "-fsyntax-only", f"-I{tmp_path}", *sources])


def test_the_format_is_that_of_the_page() -> None:
    assert f"`{MAGIC.to_bytes(4, 'little').decode()}`" in PAGE and f"format: {FORMAT}" in PAGE
    named = {int(number) for number in re.findall(r"(\d) (?:beginning|input|state|output|end)", PAGE)}
    assert named == set(map(int, Role))
