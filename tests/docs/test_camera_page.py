"""The C of the page on cameras compiles, and scales what a camera sends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file
from microfold.options import Options
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run, write
from tests.needs import need_tools

ROOT = Path(__file__).resolve().parents[2]
PERSON = ROOT / "examples" / "person"
PAGE = (ROOT / "docs" / "camera.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```c\n/\* (\w+\.[ch]) \*/\n(.*?)^```$", PAGE, re.M | re.S))

# Whoever waits gets LINES lines of a frame, as DMA and its interrupt bring them.
CAMERA = """
#include <stdio.h>
#include <string.h>
#include "capture.h"
#include "scaler.h"

#ifndef LINES
#define LINES 1
#endif

static uint8_t frame[CAMERA_HEIGHT][2u * CAMERA_WIDTH];
static uint8_t *next;
static uint32_t sent;

void camera_start(uint8_t *line)
{
    next = line;
    sent = 0;
}

void camera_wait(void)
{
    for (int i = 0; i < LINES && sent < CAMERA_HEIGHT; i++) {
        memcpy(next, frame[sent++], sizeof frame[0]);
        next = capture_line_done();
    }
}

static void load(void)
{
    FILE *const file = fopen("FRAMES", "rb");

    for (int i = 0; i < 4; i++) { /* the last one has somebody */
        if (file == NULL || fread(frame, sizeof frame, 1, file) != 1) {
            printf("no frame");
        }
    }
}
""".replace("FRAMES", str(PERSON / "frames.rgb565"))

CAPTURES = """
int main(void)
{
    static uint8_t picture[96 * 96], whole[96 * 96];
    static uint32_t words[SCALER_WORDS(96u, 1u)];
    scaler scale;

    load();
    capture_init();
    const bool good = capture_frame(picture) && capture_frame(picture);
    scaler_init(&scale, CAMERA_WIDTH, CAMERA_HEIGHT, 96u, 1u, words);
    scaler_begin(&scale, whole);
    for (uint32_t row = 0; row < CAMERA_HEIGHT; row++) {
        scaler_push(&scale, frame[row]);
    }
    printf("%s", !good ? "spoilt" : memcmp(picture, whole, sizeof whole) == 0 ? "equal" : "different");
    return 0;
}
"""

DETECTS = """
int main(void)
{
    load();
    detect_init();
    detect();
    printf("%.6f", (double)detect());
    return 0;
}
"""

LENDS = """
#include "lent.h"

void camera_fill(uint8_t *to, uint32_t size)
{
    memcpy(to, frame, size);
}

uint8_t *capture_line_done(void)
{
    return 0;
}

int main(void)
{
    load();
    lent_detect();
    printf("%.6f", (double)lent_detect());
    return 0;
}
"""


def printed(folder: Path, main: str, parts: list[str], options: Options | None, *flags: str) -> str:
    """What a program of files of the page prints, with the example's network as built by `options`."""
    need_tools("cc")
    model = emit(compile_file(PERSON / "person.tflite", target.load("host"), options)) if options else {}
    write(folder, model | FILES | {"main.c": CAMERA + main})
    sources = [folder / name for name in (*parts, "main.c", *(name for name in model if name.endswith(".c")))]
    includes = (f"-I{folder}", f"-I{PERSON}")
    run(["cc", *STRICT, *flags, *includes, *sources, PERSON / "scaler.c", "-o", folder / "program"])
    return run([folder / "program"])


def test_the_page_has_these_files() -> None:
    assert set(FILES) == {"capture.c", "capture.h", "detect.c", "detect.h", "lent.c", "lent.h"}


@pytest.mark.parametrize(("lines", "result"), [(1, "equal"), (2, "spoilt"), (3, "spoilt")])
def test_two_lines_are_enough_if_they_are_scaled_in_time(lines: int, result: str, tmp_path: Path) -> None:
    assert printed(tmp_path, CAPTURES, ["capture.c"], None, f"-DLINES={lines}") == result


@pytest.mark.slow
def test_pictures_in_the_arena_and_frames_in_it_give_the_same(tmp_path: Path) -> None:
    include = '#include "detect.h"\n'
    score = printed(tmp_path / "arena", include + DETECTS, ["capture.c", "detect.c"], Options())
    assert score == printed(tmp_path / "caller", LENDS, ["lent.c"], Options(io="caller"))
    readme = (PERSON / "README.md").read_text(encoding="utf-8")
    percent = re.findall(r"^ +3 +(\d+) %", readme, re.M)
    assert [f"{100 * float(score):.0f}"] == percent
