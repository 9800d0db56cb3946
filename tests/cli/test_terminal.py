"""What people see: in a terminal, in a pipe, in a narrow window, without colours, while they wait."""

from __future__ import annotations

import json
import os
import re
import select
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.command_line import microfold, refuse, refuse_as_json, succeed
from tests.sampling import sampled

if os.name == "posix":
    import fcntl
    import pty
    import termios

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "tests" / "models" / "made"
CNN = MADE / "cnn_int8.tflite"
# Of layers into each of which TensorFlow has fused five others.
FUSED = MADE / "dscnn_bn_int8.tflite"

COMMANDS = {
    "build": ("build", FUSED, "-o", "OUT"),
    "inspect": ("inspect", FUSED),
    "kernels": ("kernels", FUSED),
    "passes": ("passes",),
    "targets": ("targets",),
}


def words(command: tuple[object, ...], folder: Path) -> list[str]:
    return [str(folder) if word == "OUT" else str(word) for word in command]


def in_terminal(
    arguments: list[str],
    columns: int,
    environment: Mapping[str, str] | None = None,
    interpreter: tuple[str, ...] = ("-m", "microfold"),
) -> str:
    """What a command writes to a terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")}
    kept |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)} | dict(environment or {})
    command = [sys.executable, *interpreter, *arguments]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=kept)
    os.close(slave)
    found = b""
    while select.select([master], [], [], 120)[0]:
        try:
            part = os.read(master, 1 << 16)
        except OSError:  # Linux's way to say that nobody writes any more
            break
        if not part:
            break
        found += part
    os.close(master)
    assert process.wait() == 0, found
    return found.decode()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def is_code(line: str) -> bool:
    """Lines of C are to be copied, and stay whole."""
    return line.startswith("    ") and line.rstrip().endswith((";", "*/", '.h"'))


@pytest.mark.parametrize("columns", sampled([60, 80, 120, 200], 2))
@pytest.mark.parametrize("name", COMMANDS)
def test_columns_are_honoured(
    name: str, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = succeed(*words(COMMANDS[name], tmp_path))
    assert "\x1b" not in text and text.isascii()
    long = [line for line in text.split("\n") if len(line) > columns and not is_code(line)]
    assert long == []
    # It uses what room there is.
    assert max(map(len, text.split("\n"))) > columns * 0.6 or columns == 200


@pytest.mark.slow
def test_the_same_in_a_terminal(tmp_path: Path) -> None:
    text = in_terminal(words(COMMANDS["build"], tmp_path), 70)
    rows = [line for line in re.split(r"[\r\n]+", plain(text)) if "s8_" in line]
    assert rows and all(len(line) <= 70 for line in rows)
    assert "columns that do not fit: operator, output" in plain(text)
    wider = in_terminal(words(COMMANDS["build"], tmp_path), 70, {"COLUMNS": "200"})
    assert "do not fit" not in plain(wider)


@pytest.mark.parametrize("value", ["", "0", "-3", "wide", "99999999999"])
def test_columns_that_are_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = succeed("targets")
    monkeypatch.setenv("COLUMNS", value)
    assert succeed("targets") == expected


def test_pipes_get_whole_lines(tmp_path: Path) -> None:
    for name, command in COMMANDS.items():
        text = succeed(*words(command, tmp_path))
        assert text.isascii() and "\x1b" not in text, name
        assert text == "".join(f"{line.rstrip()}\n" for line in text.split("\n")[:-1]), name
    rows = [re.split(r"  +", line) for line in succeed("passes").split("\n")]
    assert [row[0] for row in rows].count("fold_constant") == 1


@pytest.mark.slow
def test_no_color(tmp_path: Path) -> None:
    """Neither in what is printed, nor in the spinner; bold is no colour."""
    arguments = words(COMMANDS["build"], tmp_path)
    styles = [
        set(re.findall(r"\x1b\[([0-9;]*)m", in_terminal(arguments, 100, environment)))
        for environment in ({}, {"NO_COLOR": "1"})
    ]
    assert any(re.search(r"\b(3[0-8]|9[0-7])\b", style) for style in styles[0])
    assert styles[1] <= {"", "0", "1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("build", CNN, "-t", "host", "-o", "OUT"), ["compiling cnn_int8.tflite", "measuring code size"]),
        (("verify", CNN, "-t", "host"), ["compiling cnn_int8.tflite", "running 8 input sets on host"]),
        (("kernels", CNN, "-t", "cortex-m4"), ["compiling cnn_int8.tflite"]),
        *(((name, CNN), ["compiling cnn_int8.tflite"]) for name in ("ir", "opt")),
        (("inspect", CNN), ["reading cnn_int8.tflite"]),
    ],
)
def test_progress(command: tuple[object, ...], what: list[str], tmp_path: Path) -> None:
    """In a terminal what takes longer than a moment says what it does; elsewhere nothing does."""
    text = plain(in_terminal(words(command, tmp_path), 100))
    assert all(each in text for each in what)
    assert microfold(*words(command, tmp_path)).err == ""


def test_a_bar_that_waits_moves() -> None:
    """One program may take minutes: the bar counts seconds, and where no more is known of goes to and fro."""
    code = """
import time
from microfold.cli.common import progress_bar
with progress_bar("programs measured", quiet=False) as progress:
    for done, total in ((0, 1), (1, 1), (1, 3)):
        progress(done, total)
        time.sleep(0.4)
"""
    text = in_terminal([code], 100, interpreter=("-c",))
    assert all(each in plain(text) for each in ("programs measured", "0 of 1", "1 of 1", "1 of 3", "0:00:01"))
    assert len(set(re.findall(r"[^\r]*1 of 1[^\r]*", text))) > 1  # while nothing is reported


def test_names_are_short_and_whole_in_json(tmp_path: Path) -> None:
    report = json.loads(succeed("build", FUSED, "-o", tmp_path, "--json"))
    names = [layer["name"] for layer in report["layers"]]
    assert len(set(names)) == len(names)
    assert any(";" in layer["tensor"] for layer in report["layers"])
    text = succeed("kernels", FUSED, "-t", "host")
    assert ";sequential" not in text and ";sequential" not in succeed("inspect", FUSED)
    layers = json.loads(succeed("kernels", FUSED, "-t", "host", "--json"))
    assert [layer["name"] for layer in layers] == names
    assert [layer["tensor"] for layer in layers] == [layer["tensor"] for layer in report["layers"]]
    assert all(re.search(rf"^ *\d+ +{name} ", text, re.MULTILINE) for name in names)
    inspection = json.loads(succeed("inspect", FUSED, "--json"))
    assert any(";" in row["tensor"] for row in inspection["operators"])


def completions(line: str) -> list[str]:
    given = line.split(" ")
    environment = {"_MICROFOLD_COMPLETE": "complete_bash", "COMP_WORDS": line}
    environment |= {"COMP_CWORD": str(len(given) - 1), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "microfold"],
        env=os.environ | environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.slow
def test_completion() -> None:
    assert completions("microfold ver") == ["verify"]
    assert completions("microfold build x --lab") == ["--labels"]
    assert completions("microfold build x -t cortex-m3") == ["cortex-m3", "cortex-m33", *_M33]
    assert completions("microfold build x --optimize s") == ["size", "speed"]
    assert completions("microfold build x --io ") == ["arena", "caller", "rows"]
    assert completions("microfold build x --numerics r") == ["relaxed"]
    assert "--install-completion" in succeed("--help")


_M33 = ["cortex-m33-nodsp", "cortex-m33-nofp"]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["build", "missing.tflite"], "check the path"),
        (
            ["build", ROOT / "README.md"],
            "pass a .tflite file, or a C file that `xxd -i`",
        ),
        (["build", CNN, "--flash", "10"], "by estimate, which is proved: allow "),
        (["build", CNN, "-o", CNN], "it is not a folder; check the path"),
        (["build", CNN, "-t", "cortex-m99"], "or the path of a .toml file"),
        (["build", CNN, "--external", "foo"], "available: cmsis-nn"),
        (["build", CNN, "--input-shape", "y=1"], "the inputs are"),
        (["build", CNN, "--bogus"], "microfold build --help"),
        (["build"], "microfold build --help"),
        (["nope"], "microfold --help"),
        (["bench"], "bench requires a model, or --suite DIR"),
        (["bench", CNN, "-t", "host"], "choose one that `microfold targets` lists"),
        (["kernels", MADE / "lstm_fixed_f32.tflite"], "export the model with its variables frozen"),
        (["opt", CNN, "--passes", "fold_constants"], "did you mean fold_constant?"),
        (["run", CNN, "--input", CNN, "--input", CNN], "pass one file per input"),
        (["run", CNN, "--input", CNN], "save one array of numbers with numpy.save"),
    ],
)
def test_errors_say_what_to_do(arguments: list[object], advice: str) -> None:
    assert advice in refuse(*arguments)
    assert advice in refuse_as_json(*arguments)["error"]


@pytest.mark.slow
def test_every_problem_of_a_model_says_what_to_do() -> None:
    found = 0
    for path in sorted(MADE.rglob("*.tflite"))[::3]:
        result = microfold("inspect", path, "--json")
        if result.status == 0 and json.loads(result.out)["problems"]:
            problems = refuse_as_json("opt", path, "--passes", "inline")["problems"]
            assert all(problem["hint"] for problem in problems), problems
            found += len(problems)
    assert found
