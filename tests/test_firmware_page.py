"""The C of the page on firmware compiles, and does what the page says."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file
from microfold.options import Options
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run, write
from tests.counts import MODELS
from tests.needs import CROSS_TOOLS, need_tools

ROOT = Path(__file__).resolve().parents[1]
FIRMWARE = ROOT / "examples" / "digits" / "firmware"
QEMU = ("qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-serial", "none", "-monitor", "none")
LINK = ("-nostartfiles", "--specs=nano.specs", "--specs=rdimon.specs", "-T", str(FIRMWARE / "mps2-an386.ld"))

# What the first inputs give, whole runs and pieces alike.
MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "kws.h"
{include}

{globals}

static kws_context whole;
static int8_t input[KWS_INPUT_0_LENGTH];

int main(void)
{{
    for (uint32_t i = 0; i < KWS_INPUT_0_LENGTH; i++) {{
        input[i] = (int8_t)(i * 37u);
    }}
    kws_init(&whole);
    memcpy(kws_input_0(&whole), input, sizeof input);
    kws_run(&whole);
    {{
{body}
    }}
    return 0;
}}
"""


@cache
def blocks() -> dict[str, str]:
    """The page's C files by name."""
    page = (ROOT / "docs" / "firmware.md").read_text(encoding="utf-8")
    found = re.findall(r"^```c\n/\* (\w+\.[ch]) \*/\n(.*?)^```$", page, re.M | re.S)
    assert len(dict(found)) == len(found)
    return dict(found)


def build(folder: Path, options: Options, files: dict[str, str]) -> list[Path]:
    """The bundled model as `kws`, files of the page and of the test; the C among them."""
    program = compile_file(MODELS["digits"], target.load("cortex-m4"), options, name="kws")
    return write(folder, emit(program) | files)


def output(folder: Path, sources: list[Path], *flags: str) -> str:
    """What the firmware prints on a simulated core."""
    need_tools(*CROSS_TOOLS)
    core = target.load("cortex-m4")
    startup = FIRMWARE / "startup.c"
    command = [core.compiler, *core.cpu_flags, *STRICT, "-O2", *flags, f"-I{folder}", *LINK]
    run([*command, *sources, startup, "-o", folder / "image.elf"])
    semihosting = ("-semihosting-config", "enable=on,target=native")
    return run([*QEMU, *semihosting, "-kernel", folder / "image.elf"])


def main(body: str, include: str = "", variables: str = "") -> str:
    return MAIN.format(body=body, include=include, globals=variables)


@pytest.mark.slow
def test_cycles_of_every_layer(tmp_path: Path) -> None:
    body = 'for (int i = 0; i < KWS_LAYER_COUNT; i++) printf("%lu\\n", (unsigned long)profile[i]);'
    text = main(body, '#include "profile.h"', "uint32_t profile[KWS_LAYER_COUNT];")
    sources = build(tmp_path, Options(), blocks() | {"main.c": text})
    kept = [path for path in sources if path.name.startswith(("kws", "main"))]
    # A counter of the board: QEMU has no DWT.
    counter = "-DCYCLES=(*(volatile uint32_t *)0x40028018u)"
    cycles = output(tmp_path, kept, '-DKWS_HOOKS="profile.h"', counter).split()
    assert len(cycles) == 10
    assert any(int(count) > 0 for count in cycles)
    assert all(int(count) < 1 << 24 for count in cycles)


@pytest.mark.slow
def test_the_watchdog_is_refreshed_before_every_layer(tmp_path: Path) -> None:
    counting = "static int refreshed;\nvoid watchdog_refresh(void) { refreshed++; }"
    text = main('printf("%d", refreshed);', '#include "watchdog.h"', counting)
    sources = build(tmp_path, Options(), blocks() | {"main.c": text})
    kept = [path for path in sources if path.name.startswith(("kws", "main"))]
    assert output(tmp_path, kept, '-DKWS_HOOKS="watchdog.h"') == "10"


@pytest.mark.slow
def test_polling_gives_what_a_run_gives(tmp_path: Path) -> None:
    body = """
        int polls = 1;
        classify_init();
        classify_begin(input);
        while (!classify_poll()) {
            polls++;
        }
        const int same = memcmp(classify_result(), kws_output_0(&whole), KWS_OUTPUT_0_SIZE) == 0;
        printf("%d %s", polls, same ? "same" : "different");
    """
    sources = build(tmp_path, Options(step=True), blocks() | {"main.c": main(body, '#include "classify.h"')})
    assert output(tmp_path, sources) == "10 same"
