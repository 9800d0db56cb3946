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

ROOT = Path(__file__).resolve().parents[2]
FIRMWARE = ROOT / "examples" / "firmware"
QEMU = ("qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-serial", "none", "-monitor", "none")
LINK = ("-nostartfiles", "--specs=nano.specs", "--specs=rdimon.specs", "-T", str(FIRMWARE / "mps2-an386.ld"))

# Parts of the simulated board's memories.
MEMORIES = """
MEMORY
{
  ITCM (rwx) : ORIGIN = 0x20100000, LENGTH = 16K
  DTCM (rw)  : ORIGIN = 0x20200000, LENGTH = 64K
  QSPI (r)   : ORIGIN = 0x00100000, LENGTH = 1M
}
"""

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


def own(sources: list[Path], *others: str) -> list[Path]:
    """The model's and the test's sources, and the others that are named."""
    return [path for path in sources if path.name.startswith(("kws", "main", *others))]


def main(body: str, include: str = "", variables: str = "") -> str:
    return MAIN.format(body=body, include=include, globals=variables)


@pytest.mark.slow
def test_cycles_of_every_layer(tmp_path: Path) -> None:
    body = 'for (int i = 0; i < KWS_LAYER_COUNT; i++) printf("%lu\\n", (unsigned long)profile[i]);'
    text = main(body, '#include "profile.h"', "uint32_t profile[KWS_LAYER_COUNT];")
    sources = build(tmp_path, Options(), blocks() | {"main.c": text})
    kept = own(sources)
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
    assert output(tmp_path, own(sources), '-DKWS_HOOKS="watchdog.h"') == "10"


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
    assert output(tmp_path, own(sources, "classify")) == "10 same"


@pytest.mark.slow
def test_code_constants_and_context_lie_where_they_are_put(tmp_path: Path) -> None:
    """The board's memories stand for a Cortex-M7's; the layers of the bundled model for the page's."""
    page = (ROOT / "docs" / "firmware.md").read_text(encoding="utf-8")
    options = Options(place_code=("re_lu_1=.itcm",), place=("dense_1=.qspi",))
    for option in ("--place-code conv_1=.itcm", "--place dense_1=.qspi"):
        assert option in page
    (script,) = re.findall(r"^```ld\n(.*?)^```$", page, re.M | re.S)
    (tmp_path / "places.ld").write_text(MEMORIES + script, encoding="utf-8")
    body = """
        memory_init();
        memcpy(kws_input_0(&network), input, sizeof input);
        kws_run(&network);
        const int same = memcmp(kws_output_0(&network), kws_output_0(&whole), KWS_OUTPUT_0_SIZE) == 0;
        printf("%p %s", (void *)&network, same ? "same" : "different");
    """
    # The whole run would need the code where it is not yet: here memory_init comes first.
    text = main(body, '#include "memory.h"').replace(
        "kws_init(&whole)", "memory_init();\n    kws_init(&whole)"
    )
    sources = build(tmp_path, options, blocks() | {"main.c": text})
    assert output(tmp_path, own(sources, "memory"), "-T", str(tmp_path / "places.ld")) == "0x20200000 same"
    sections = run(["arm-none-eabi-objdump", "-h", tmp_path / "image.elf"])
    sizes = {name: int(size, 16) for name, size in re.findall(r"(\.itcm|\.qspi|\.dtcm) +(\w+)", sections)}
    assert sizes[".itcm"] > 200 and sizes[".qspi"] > 1000 and sizes[".dtcm"] > 2000
