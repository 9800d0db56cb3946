"""The example that spots keywords: its output, its features, its WAV reader; the code of the page on it."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run, write
from tests.examples.makefiles import ARM_TOOLS, EXAMPLES, HOST_TOOLS, expected_output, make
from tests.needs import need_tools

KEYWORDS = EXAMPLES / "keywords"
PAGE = EXAMPLES.parent / "docs" / "microphone.md"

# What the extractor takes from keywords.h.
QUANTIZATION = """
#define KEYWORDS_INPUT_0_LENGTH 1568
#define KEYWORDS_INPUT_0_SCALE 0.14f
#define KEYWORDS_INPUT_0_ZERO_POINT (-128)
"""

READ_WAV = """
#include "wav.h"

int main(int argc, char **argv)
{
    static wav_reader wav;
    int16_t samples[4];

    if (argc != 2 || !wav_open(&wav, argv[1])) {
        puts(wav.problem);
        return 1;
    }
    for (uint32_t count; (count = wav_read(&wav, samples, 4)) > 0;) {
        for (uint32_t i = 0; i < count; i++) {
            printf("%d ", samples[i]);
        }
    }
    wav_close(&wav);
    return 0;
}
"""

# The vendor's header, for the code of the page.
BOARD = """
#include <stdint.h>
#define __DMB() __asm__ volatile("" ::: "memory")
typedef int SAI_HandleTypeDef;
extern SAI_HandleTypeDef microphone_sai;
int HAL_SAI_Receive_DMA(SAI_HandleTypeDef *sai, uint8_t *data, uint16_t size);
void HAL_SAI_RxHalfCpltCallback(SAI_HandleTypeDef *sai);
void HAL_SAI_RxCpltCallback(SAI_HandleTypeDef *sai);
void listen(void);
"""

# A DMA that is three blocks ahead of the main loop; then one that is far ahead.
LISTEN = """
#include <stdio.h>
#include <string.h>
#include "log_mel.h"
#include "microphone.h"
#include "wav.h"

int main(int argc, char **argv)
{
    static wav_reader wav;
    const char *keyword;
    uint32_t percent;
    uint32_t late = 3;

    microphone_init();
    if (argc != 2 || !wav_open(&wav, argv[1])) {
        return 1;
    }
    for (uint32_t block = 0; block < 240; block++) {
        int16_t half[LOG_MEL_HOP] = {0};

        wav_read(&wav, half, LOG_MEL_HOP);
        microphone_block(half);
        if (late > 0) {
            late--;
        } else if (microphone_poll(&keyword, &percent)) {
            printf("%s %u\\n", keyword, (unsigned)percent);
        }
    }
    for (int i = 0; i < 20; i++) {
        static const int16_t half[LOG_MEL_HOP];

        microphone_block(half);
    }
    printf("%u lost\\n", (unsigned)microphone_lost());
    wav_close(&wav);
    return 0;
}
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the host's build, and what `make host` prints."""
    folder = tmp_path_factory.mktemp("keywords")
    return folder, make("keywords", "host", folder, HOST_TOOLS)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the Cortex-M4's builds."""
    return tmp_path_factory.mktemp("simulated")


@pytest.mark.slow
def test_host(host: tuple[Path, str]) -> None:
    assert host[1].endswith(expected_output("keywords", "test/"))


@pytest.mark.slow
def test_simulated(simulated: Path) -> None:
    printed = make("keywords", "run", simulated, ARM_TOOLS)
    assert printed.endswith(expected_output("keywords", "test/"))


@pytest.mark.slow
def test_instructions_are_those_of_the_readme(simulated: Path) -> None:
    """Within a tenth: compilers differ."""
    measured = re.compile(r"^(?:features|network), .*: +(\d+) instructions, +(\d+) bytes", re.M)
    printed = measured.findall(make("keywords", "count", simulated, ARM_TOOLS))
    stated = measured.findall(expected_output("keywords", "features, a column"))
    assert [len(rows) for rows in (printed, stated)] == [2, 2]
    assert [int(count) for count, _ in printed] == pytest.approx([int(count) for count, _ in stated], rel=0.1)
    assert [ram for _, ram in printed] == [ram for _, ram in stated]


def test_features_are_those_of_the_float_pipeline(tmp_path: Path) -> None:
    """As `make check`, without the seconds that it takes to compile the network."""
    need_tools("cc")
    header, library = tmp_path / "keywords.h", tmp_path / "log_mel.so"
    write(tmp_path, {"keywords.h": QUANTIZATION})
    tables = subprocess.check_output([sys.executable, KEYWORDS / "make_tables.py"], text=True)
    write(tmp_path, {"log_mel_tables.h": tables})
    flags = ("-fsanitize=undefined", "-fno-sanitize-recover=all") if sys.platform == "linux" else ()
    source = KEYWORDS / "log_mel.c"
    run(["cc", *STRICT, "-O1", *flags, "-shared", "-fPIC", f"-I{tmp_path}", source, "-o", library])
    command = [sys.executable, KEYWORDS / "check_log_mel.py", library, header]
    checked = subprocess.run(command, text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    rows = checked.stdout.splitlines()
    stated = expected_output("keywords", "sound ").splitlines()
    assert [row[:28] for row in rows] == [row[:28] for row in stated]
    total = re.fullmatch(r"all +\d+ +\d+ +(\d+), ([\d.]+)%", rows[-1])
    assert total
    assert int(total[1]) <= 1
    assert float(total[2]) < 0.5


def wav(*chunks: tuple[bytes, bytes], form: bytes = b"WAVE") -> bytes:
    """A RIFF file of chunks, each padded to an even length."""
    content = b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", 4 + len(content)) + form + content


def pcm(code: int = 1, channels: int = 1, rate: int = 16000, bits: int = 16) -> tuple[bytes, bytes]:
    width = channels * bits // 8
    return b"fmt ", struct.pack("<HHIIHH", code, channels, rate, rate * width, width, bits)


SOUND = (b"data", struct.pack("<5h", 1, -1, 32767, -32768, 256))
SAMPLES = "1 -1 32767 -32768 256 "
NO_SOUND = 'has no sound: it ends before a chunk "data" behind a "fmt "'
FORMAT = "must be PCM (format 1), 1 channel, 16000 Hz, 16 bits; is format {}, {} channels, {} Hz, {} bits"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints the samples of a WAV, or what is wrong with it."""
    need_tools("cc")
    folder = tmp_path_factory.mktemp("reader")
    write(folder, {"main.c": READ_WAV})
    sources = (folder / "main.c", KEYWORDS / "wav.c")
    run(["cc", *STRICT, "-iquote", KEYWORDS, *sources, "-o", folder / "reader"])
    return folder / "reader"


@pytest.mark.parametrize(
    ("content", "printed"),
    [
        pytest.param(wav(pcm(), SOUND), SAMPLES, id="plain"),
        pytest.param(
            wav((b"LIST", b"odd"), pcm(), (b"fact", b"1234"), SOUND, (b"tail", b"12")),
            SAMPLES,
            id="other chunks",
        ),
        pytest.param(wav((b"fmt ", pcm()[1] + b"\0\0"), SOUND), SAMPLES, id="longer format"),
        pytest.param(wav(pcm(), SOUND)[:-3], "1 -1 32767 ", id="cut off"),
        pytest.param(
            wav(pcm(), SOUND).replace(b"data\x0a\0\0\0", b"data\xff\xff\xff\xff"),
            SAMPLES,
            id="size of a pipe",
        ),
        pytest.param(wav(pcm(), (b"data", b"\1\0\2")), "1 ", id="half a sample"),
        pytest.param(wav(pcm(code=3, bits=32), SOUND), FORMAT.format(3, 1, 16000, 32), id="float"),
        pytest.param(wav(pcm(channels=2, rate=44100), SOUND), FORMAT.format(1, 2, 44100, 16), id="stereo"),
        pytest.param(wav(SOUND, pcm()), NO_SOUND, id="no format before"),
        pytest.param(wav(pcm()), NO_SOUND, id="no data"),
        pytest.param(wav((b"fmt ", b"\1\0\1\0"), SOUND), NO_SOUND, id="short format"),
        pytest.param(
            wav(pcm(), (b"LIST", b"")).replace(b"LIST\0\0\0\0", b"LIST\xff\xff\xff\xff"),
            NO_SOUND,
            id="endless chunk",
        ),
        pytest.param(wav(pcm(), SOUND, form=b"AVI "), "is no WAV file", id="not WAVE"),
        pytest.param(b"RIFF", "is no WAV file", id="four bytes"),
        pytest.param(b"", "is no WAV file", id="empty"),
    ],
)
def test_wav_reader(reader: Path, tmp_path: Path, content: bytes, printed: str) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    done = subprocess.run([reader, "a.wav"], cwd=tmp_path, text=True, capture_output=True, check=False)
    good = printed[0].isdigit()
    assert (done.returncode, done.stdout) == ((0, printed) if good else (1, f"a.wav: {printed}\n"))


def test_wav_reader_without_a_file(reader: Path, tmp_path: Path) -> None:
    done = subprocess.run([reader, tmp_path.name], text=True, capture_output=True, check=False)
    assert done.stdout.endswith(": cannot be read\n")


@pytest.mark.slow
def test_the_page_on_microphones(host: tuple[Path, str], tmp_path: Path) -> None:
    """Its code hears what the example hears, also if the main loop is late; what is too late is counted."""
    folder, printed = host
    page = PAGE.read_text(encoding="utf-8")
    blocks = dict(re.findall(r"^```c\n/\* (\w+\.[ch]) \*/\n(.*?)^```$", page, re.M | re.S))
    assert set(blocks) == {"microphone.c", "microphone.h", "stm32.c"}
    write(tmp_path, blocks | {"board.h": BOARD, "main.c": LISTEN})
    places = (tmp_path, folder, folder / "host", KEYWORDS)
    include = [option for place in places for option in ("-iquote", place)]
    run(["cc", *STRICT, "-fsyntax-only", *include, tmp_path / "stm32.c"])
    sources = [tmp_path / "main.c", tmp_path / "microphone.c", *(folder / "host").glob("*.c")]
    sources += [KEYWORDS / f"{part}.c" for part in ("log_mel", "detector", "wav")]
    run(["cc", *STRICT, "-O1", *include, *sources, "-o", tmp_path / "listen"])
    *heard, lost = run([tmp_path / "listen", KEYWORDS / "test" / "flite.wav"]).splitlines()
    example = printed.partition("test/flite.wav\n")[2].partition("test/")[0]
    words = re.findall(r"^ *[\d.]+ s  (\w+) +(\d+) %$", example, re.M)
    assert len(words) > 1
    assert heard == [f"{word} {percent}" for word, percent in words]
    assert lost == "15 lost"
