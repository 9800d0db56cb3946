"""The user's board: its description, its command, its answers, and the firmware on simulated cores."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import InputError, RunError
from microfold.ir.text import to_text
from microfold.options import Options
from microfold.program import Program
from microfold.target import Target
from microfold.tune.board import load_board
from microfold.tune.board_runner import (
    BoardRunner,
    check_command,
    entry_command,
    read_times,
    run_command,
)
from microfold.tune.database import Database
from microfold.tune.entry import check_entry
from microfold.tune.measure import RunnerError, Times
from tests.codegen.test_parts import having
from tests.command_line import microfold, refuse
from tests.kernels import graphs
from tests.needs import CROSS_TOOLS
from tests.plan.stream.nets import Nets
from tests.tune.stubs import variants

GRAPH = graphs.conv2d_graph(8, 8, 8, 8, padding=((1, 1), (1, 1)))
ANSWER = "noise\nmicrofold-tune 2 2 2\r\n" + "".join(
    f"[board] microfold-tune layer {run} 0 {10 * run + 10}\r\n"
    f"[board] microfold-tune layer {run} 1 {10 * run + 110}\r\n"
    f"[board] microfold-tune between {run} {7 - run}\r\n"
    for run in range(2)
)
# Whatever has this kernel takes few cycles.
STUB = dedent(
    """\
    import sys, time
    from pathlib import Path

    def answer(elf):
        cycles = 100 if b"s8_conv2d__dsp_4x2" in Path(elf).read_bytes() else 5000
        lines = [f"microfold-tune layer {run} 0 {cycles + run}" for run in range(2)]
        lines += [f"microfold-tune between {run} 0" for run in range(2)]
        return "\\n".join(["microfold-tune 2 1 2", *lines, "microfold-tune end"])

    if __name__ == "__main__":
        if sys.argv[2] == "hang":
            time.sleep(600)
        if sys.argv[2] == "fail":
            sys.exit("no board")
        if sys.argv[2] == "once":
            answered = Path(__file__).with_suffix(".answered")
            if answered.exists():
                time.sleep(600)
            answered.touch()
            sys.argv[2] = "0.1"
        time.sleep(float(sys.argv[2]))
        print(answer(sys.argv[1]), flush=True)
        if sys.argv[2] == "0":
            time.sleep(600)
    """
)


def describe(folder: Path, **changes: object) -> Path:
    values = {
        "name": "stub",
        "clock": 48_000_000,
        "flash": [0, 1 << 22],
        "ram": [0x2000_0000, 1 << 22],
        "runs": 2,
    }
    path = folder / "board.toml"
    path.write_text(
        "\n".join(f"{k} = {json.dumps(v)}" for k, v in (values | changes).items()), encoding="utf-8"
    )
    return path


def stub(folder: Path, *arguments: str) -> str:
    path = folder / "stub.py"
    path.write_text(STUB, encoding="utf-8")
    return f"{shlex.join([sys.executable, str(path)])} {{elf}} {shlex.join(arguments)}"


def model(folder: Path) -> Path:
    path = folder / "model.mf"
    path.write_text(to_text(GRAPH), encoding="utf-8")
    return path


def test_answers() -> None:
    times = read_times(ANSWER + "microfold-tune end\n", 2, 2)
    assert times.layers == [[10, 20], [110, 120]]
    assert times.total == 127  # 10 + 110 and 7 between them
    unlike = ANSWER.replace("between 1", "between 2") + "microfold-tune end"
    for text, layers in ((ANSWER, 2), (ANSWER + "microfold-tune end", 3), (unlike, 2), ("", 2)):
        with pytest.raises(RunnerError, match="the board must print"):
            read_times(text, layers, 2)
    still = re.sub(r"((?:layer|between) .*) \d+\r", r"\1 0\r", ANSWER) + "microfold-tune end"
    with pytest.raises(RunnerError, match=r'the counter must count.*counter = "systick"'):
        read_times(still, 2, 2)
    with pytest.raises(RunError, match="fault"):
        read_times("microfold-tune fault", 2, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flash": [0]}, "an address and a size"),
        ({"ram": [1 << 32, 1]}, "within 4 GiB"),
        ({"clock": 0}, "clock must be a whole number from 1 to 10000000000; it is 0"),
        ({"name": "a b"}, "name must be 1 to 64 letters"),
        ({"caches": "hot"}, "one of cold, warm"),
        ({"colour": "red"}, "unknown key colour"),
        ({"output": "sources"}, "requires sources"),
        ({"sources": ["none.c"]}, "sources must exist; 'none.c' does not"),
    ],
)
def test_descriptions_that_are_wrong(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_board(describe(tmp_path, **changes))


def test_commands(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must have \{elf\}"):
        check_command("flash image.elf")
    with pytest.raises(RunnerError, match="cannot be started"):
        run_command(f"{tmp_path}/none {{elf}}", tmp_path, 5.0)
    with pytest.raises(RunnerError, match="ended with status 1: no board"):
        run_command(stub(tmp_path, "fail"), tmp_path, 60.0)
    begin = time.monotonic()
    with pytest.raises(RunnerError, match=r"within 0\.5 s"):
        run_command("sh -c 'sleep 600; :' {elf}", tmp_path, 0.5)
    assert time.monotonic() - begin < 60
    (tmp_path / "image.elf").write_bytes(b"s8_conv2d__dsp_4x2")
    stub(tmp_path)
    with pytest.raises(RunnerError, match=r"status 1: \S+:answer has raised FileNotFoundError: "):
        run_command(entry_command(f"{tmp_path}/stub.py:answer"), tmp_path / "none.elf", 60.0)
    text = run_command(entry_command(f"{tmp_path}/stub.py:answer"), tmp_path / "image.elf", 60.0)
    assert read_times(text, 1, 2).total == 100


def test_what_boards_cannot_measure_is_refused_at_once(tmp_path: Path) -> None:
    words = ("tune", model(tmp_path), "--database", tmp_path / "a.db", "--board-file", describe(tmp_path))
    words += ("--runner-command", "flash {elf}", "--weights", "blob", "--taps")
    assert "cannot be combined with --weights blob, --taps" in refuse(*words)
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("nofile.py:f", "nofile.py cannot be read"),
        ("nocolon", "must be FILE.py:FUNCTION or MODULE:FUNCTION"),
        ("{0}/stub.py:none", "has no 'none'"),
        ("{0}/broken.py:f", "broken.py cannot be read: "),
        ("no_such_module_anywhere:f", "it does not find 'no_such_module_anywhere'"),
        ("no_such.module:f", "no_such.module cannot be read"),
        ("json:none", "json/__init__.py has no 'none'"),
        ("{0}/stub.py:not a name", "must be FILE.py"),
    ],
)
def test_functions_that_are_not_there(tmp_path: Path, entry: str, message: str) -> None:
    stub(tmp_path)
    (tmp_path / "broken.py").write_text("def f(:\n", encoding="utf-8")
    words = ("tune", model(tmp_path), "--database", tmp_path / "a.db", "--board-file", describe(tmp_path))
    assert message in refuse(*words, "--runner", entry.format(tmp_path))


def test_functions_that_are_there(tmp_path: Path) -> None:
    stub(tmp_path)
    for entry in (f"{tmp_path}/stub.py:answer", f"{tmp_path}/stub.py:Path", "json:dumps", "math:sin"):
        check_entry(entry)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
def test_that_nothing_could_be_measured_is_no_success(tmp_path: Path) -> None:
    words = ["tune", model(tmp_path), "--database", tmp_path / "a.db", "--candidates", "1"]
    words += ["--board-file", describe(tmp_path, flash=[0, 1024]), "--runner-command", "flash {elf}"]
    message = refuse(*words)
    assert "all measurements failed: " in message
    assert "arm-none-eabi-gcc" in message


def test_options_of_boards_belong_together(tmp_path: Path) -> None:
    words = ("tune", model(tmp_path), "--database", tmp_path / "a.db")
    assert "--board-file" in refuse(*words, "--runner-command", "flash {elf}")
    board = describe(tmp_path)
    assert "--runner-command or --runner" in refuse(*words, "--board-file", board)
    twice = ("--runner-command", "flash {elf}") * 2
    assert "two commands are equal" in refuse(*words, "--board-file", board, *twice)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
def test_the_command_finds_the_best_and_leaves_bad_boards_out(tmp_path: Path) -> None:
    words = ["tune", model(tmp_path), "--database", tmp_path / "a.db", "--board-file", describe(tmp_path)]
    for command in ("hang", "fail", "0"):
        words += ["--runner-command", stub(tmp_path, command)]
    result = microfold(*words, "--timeout", "6", "--candidates", "16", "--json")
    assert result.status == 0, result.err
    (tuning,) = json.loads(result.out)
    assert len(tuning["boards_lost"]) == 2
    (layer,) = tuning["layers"]
    assert layer["after"].startswith("s8_conv2d__dsp_4x2")
    assert (layer["cycles_before"], layer["cycles_after"], tuning["total_after"]) == (5000, 100, 100)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_leaves_a_database_that_the_same_command_goes_on_with(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    words = ["tune", model(tmp_path), "--database", path, "--board-file", describe(tmp_path)]
    # Signals come while the second answer is waited for, whenever that is.
    words += ["--runner-command", stub(tmp_path, "once")]
    process = subprocess.Popen(
        [sys.executable, "-m", "microfold", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Shells have what runs in their background ignore it, and so do all programs that this starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not path.exists() or not rows(path):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "repeat the command to continue" in err
    assert "Traceback" not in err
    before = rows(path)
    words[-1] = stub(tmp_path, "0")
    assert microfold(*words).status == 0
    assert rows(path) > before > 0


def rows(path: Path) -> int:
    try:
        with Database(path) as database:
            return len(variants(database))
    except InputError:
        return 0  # it is just being made


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize(
    ("core", "machine", "flash", "ram", "counter", "memory"),
    [
        ("cortex-m0plus", "mps2-an385", [0, 1 << 22], [0x2000_0000, 1 << 22], "systick", "context"),
        ("cortex-m4", "mps2-an386", [0, 1 << 22], [0x2000_0000, 1 << 22], "auto", "split"),
        ("cortex-m55", "mps3-an547", [0, 1 << 19], [0x3100_0000, 1 << 22], "auto", "context"),
    ],
)
def test_firmware(
    tmp_path: Path, core: str, machine: str, flash: list[int], ram: list[int], counter: str, memory: str
) -> None:
    """QEMU has the SysTick, and no DWT: with `-icount`, time is what instructions take."""
    check_firmware(tmp_path, target.load(core), Options(memory=memory), machine, flash, ram, counter)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("io", ["arena", "caller"])
def test_firmware_of_an_arena_in_parts(tmp_path: Path, io: str) -> None:
    core, options = having(256, target.load("cortex-m4")), Options(memory="parts", io=io)
    assert len(compile_graph(GRAPH, core, options).parts) == 2
    check_firmware(tmp_path, core, options, "mps2-an386", [0, 1 << 22], [0x2000_0000, 1 << 22], "auto")


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize(
    "options", [Options(io="rows"), Options(io="caller", ram=2_000)], ids=["pushed", "whole"]
)
def test_firmware_of_layers_by_rows(tmp_path: Path, options: Options) -> None:
    """Rows that are moved are no layer's time, and part of the whole run's."""
    program = compile_graph(Nets(0).tall(), target.load("cortex-m4"), options)
    assert program.stream is not None
    times = run_firmware(tmp_path, program, "mps2-an386", [0, 1 << 22], [0x2000_0000, 1 << 22], "auto")
    for layer, cycles in zip(program.layers, times.layers, strict=True):
        assert 1.0 < cycles[0] / (layer.estimated_instructions or 0) < 3.0, layer.name
    least = min(map(sum, zip(*times.layers, strict=True)))
    assert 1.005 * least < times.total < 1.5 * least


def check_firmware(
    folder: Path,
    core: Target,
    options: Options,
    machine: str,
    flash: list[int],
    ram: list[int],
    counter: str,
) -> None:
    program = compile_graph(GRAPH, core, options)
    times = run_firmware(folder, program, machine, flash, ram, counter)
    estimate = program.layers[0].estimated_instructions or 0
    # 64 ns are 1.6 cycles of 25 MHz; the M55's board has 32 MHz.
    assert 1.0 < times.total / estimate < 3.0
    assert times.layers[0][0] == pytest.approx(times.layers[0][1], rel=0.01)


def run_firmware(
    folder: Path, program: Program, machine: str, flash: list[int], ram: list[int], counter: str
) -> Times:
    """What a simulated board says."""
    board = load_board(
        describe(folder, flash=flash, ram=ram, counter=counter, caches="cold", clock=25_000_000)
    )
    command = f"qemu-system-arm -machine {machine} -kernel {{elf}} -icount shift=6,sleep=off -display none "
    command += "-serial none -monitor none -semihosting-config enable=on,target=native"
    return BoardRunner(board).times(program, command)
