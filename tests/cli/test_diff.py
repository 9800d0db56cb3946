"""microfold diff, from a build's command line to what it prints."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.cli.rebuild import compile_as, parse_command
from microfold.codegen.tensor_trace import BuildText, Role
from microfold.compiler import compile_file
from microfold.errors import InputError
from microfold.options import Options
from microfold.program import Program
from microfold.verification.tensor_trace import line
from microfold.verification.tensor_trace.records import RecordParser
from microfold.verification.verify import input_sets
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run
from tests.command_line import microfold, refuse, refuse_as_json, succeed
from tests.counts import MODELS
from tests.needs import need_modules, need_tools
from tests.taps_device import encode, main

MODEL = MODELS["digits"]
OTHER = MODEL.parents[1] / "sine" / "sine.tflite"
RUNS = 2


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a build by the command line, and the records of a device."""
    need_tools("cc")
    folder = tmp_path_factory.mktemp("device")
    write_records(folder, "--optimize", "size", "--labels", labels(folder))
    return folder


def labels(folder: Path) -> Path:
    """Names of the classes, in a folder of their own."""
    path = folder / "ten names.txt"
    path.write_text("\n".join("abcdefghij"), encoding="utf-8")
    return path


@cache
def program() -> Program:
    """What the device runs."""
    return compile_file(MODEL, target.load("host"), Options(taps=True, optimize="size"))


def write_records(folder: Path, *options: object) -> bytes:
    succeed("build", MODEL, "--taps", "-o", folder, *options)
    calls = input_sets([buffer.type for buffer in program().inputs], RUNS)
    (folder / "main.c").write_text(main(program()), encoding="utf-8")
    (folder / "inputs.bin").write_bytes(b"".join(array.tobytes() for call in calls for array in call))
    ticks = "-DDIGITS_TAP_TICKS()=(uint32_t)clock()"
    sources = sorted(folder.glob("*.c"))
    command = ["cc", *STRICT, "-O0", "-include", "time.h", ticks, f"-I{folder}", *sources, "-lm"]
    run([*command, "-o", folder / "device"])
    run([folder / "device"], folder)
    return (folder / "records.bin").read_bytes()


@pytest.fixture
def records(device: Path, tmp_path: Path) -> Path:
    """A model with its labels, and a copy of the records, in a folder of their own."""
    shutil.copy(MODEL, tmp_path)
    labels(tmp_path)
    shutil.copy(device / "records.bin", tmp_path)
    return tmp_path / "records.bin"


def model_of(records: Path) -> Path:
    return records.parent / MODEL.name


def test_the_device_says_which_build_it_is(records: Path) -> None:
    said = succeed("diff", model_of(records), records)
    assert "digits for host, build 0x" in said and f"{RUNS} runs" in said
    assert "run 0: 22 tensors equal the reference\nrun 1: 22 tensors equal the reference\n" in said
    assert "ticks" not in said


def test_so_do_options(records: Path) -> None:
    options = ("--optimize", "size", "--labels", records.parent / "ten names.txt", "--target", "host")
    succeed("diff", model_of(records), records, *options)
    error = refuse("diff", model_of(records), records, "--target", "host")
    assert "must be from digits.tflite with these options" in error
    assert "`microfold build digits.tflite --target host --optimize=size" in error
    assert refuse_as_json("diff", model_of(records), records, "--target", "host")["error"] in error


def test_a_renamed_model_is_the_same(records: Path) -> None:
    other = model_of(records).rename(records.parent / "model_7.tflite")
    assert "digits for host" in succeed("diff", other, records)


def test_data(records: Path) -> None:
    data = records.read_bytes()
    records.write_bytes(b"boot\n" + data[: len(data) // 3] + b"?" + data[len(data) // 3 :])
    report = json.loads(succeed("diff", model_of(records), records, "--json"))
    assert set(report) == {
        *("model", "target", "build_id", "equal", "first_fault", "runs", "dump", "profile"),
    }  # fmt: skip
    assert report["equal"] and report["first_fault"] is None
    assert [run["run"] for run in report["runs"]] == [0, 1]
    assert len(report["runs"][0]["missing"] + report["runs"][1]["missing"]) == 1
    (damage,) = report["dump"]["damaged"]
    assert damage["reason"] == "its checksum is wrong"
    assert report["dump"]["bytes"] == len(data) + 6 and report["dump"]["other_bytes"] > 6
    layers = report["profile"]["layers"]
    assert len(layers) == 10 and abs(sum(layer["share"] or 0 for layer in layers) - 1) < 1e-6


def test_profile(records: Path) -> None:
    said = succeed("diff", model_of(records), records, "--profile")
    assert "ticks of a layer, mean of 2 runs" in said and "###" in said


def test_the_page_of_a_report_draws_the_profile(records: Path, tmp_path: Path) -> None:
    ticks, page = tmp_path / "ticks.json", tmp_path / "report.html"
    ticks.write_text(succeed("diff", model_of(records), records, "--json"), encoding="utf-8")
    succeed("report", model_of(records), "-t", "host", "--profile", ticks, "-o", page)
    assert "ticks.json" in page.read_text(encoding="utf-8")


def test_a_fault_is_told_and_ends_with_1(device: Path, records: Path) -> None:
    """A bit of memory changes behind the fourth record, the first layer's result."""
    sources = sorted(device.glob("*.c"))
    byte = program().layers[0].outputs[0].offset + 9
    flip = ("-DFLIP_AFTER=4", f"-DFLIP_BYTE={byte}")
    folder = records.parent
    command = ["cc", *STRICT, "-O0", *flip, f"-I{device}", *sources, "-lm", "-o", folder / "flipped"]
    run(command)
    shutil.copy(device / "inputs.bin", folder)
    run([folder / "flipped"], folder)
    result = microfold("diff", model_of(records), records)
    assert result.status == 1 and "was overwritten before layer" in result.out
    assert "elements differ, first [" in result.out and "layers that have run since: none" in result.out
    assert f"a watchpoint at byte {byte} of the context" in result.out
    report = json.loads(microfold("diff", model_of(records), records, "--json").out)
    assert not report["equal"] and report["first_fault"] == report["runs"][0]["faults"][0]
    assert report["first_fault"]["kind"] == "memory" and report["first_fault"]["context_offset"] == byte
    without_clock = microfold("diff", model_of(records), records, "--profile").out
    assert "no profile: the firmware has no clock" in without_clock and "DIGITS_TAP_TICKS()" in without_clock


def test_dumps_of_other_models_are_refused(records: Path) -> None:
    error = refuse("diff", OTHER, records)
    assert "must be from sine.tflite, whose SHA-256 is" in error
    assert "it is from build 0x" in error and "of digits.tflite, SHA-256" in error
    assert "pass the model that was compiled" in error


def test_what_is_damaged_is_said_whatever_it_is(records: Path) -> None:
    """A layer that the model does not have, of its build and of another one."""
    data = records.read_bytes()
    (first, *_) = RecordParser().feed(data)
    strange = [replace(first, role=Role.LAYER_INPUT, layer=99, build=b) for b in (first.build, 7)]
    records.write_bytes(b"".join(encode(record)[:-1] for record in strange) + data)
    said = succeed("diff", model_of(records), records)
    assert "damaged record at byte 0: layer input of run 0: its checksum is wrong" in said
    assert said.count("damaged record") == 2


def test_what_is_no_dump_is_refused(tmp_path: Path) -> None:
    for name, content in {"empty": b"", "log": b"hello\n" * 100, "magic": b"MFTP" * 30}.items():
        (tmp_path / name).write_bytes(content)
        error = refuse("diff", MODEL, tmp_path / name)
        assert "must contain complete records of a build with --taps" in error and "has no records" in error
        assert "forward all bytes of the tap function" in error
    assert "cannot read" in refuse("diff", MODEL, tmp_path / "missing")
    assert "requires either DUMP or --port" in refuse("diff", MODEL)


def test_without_the_beginning_of_a_run_options_are_needed(records: Path) -> None:
    data = records.read_bytes()
    records.write_bytes(data[50 : data.find(b"MFTP\x01\x00", 50)])
    error = refuse("diff", model_of(records), records)
    assert "must contain the first record of a run" in error and "pass --target" in error
    options = ("--optimize", "size", "--labels", records.parent / "ten names.txt")
    assert "run 0: 22 tensors" in succeed("diff", model_of(records), records, *options)


def test_a_build_that_cannot_be_made_again(records: Path) -> None:
    (records.parent / "ten names.txt").write_text("\n".join("klmnopqrst"), encoding="utf-8")
    error = refuse("diff", model_of(records), records)
    assert "the build of this trace cannot be reproduced" in error and "same labels" in error


def test_one_of_several_builds_of_a_model(records: Path) -> None:
    """As if another build of the same model wrote over the same line."""
    data = records.read_bytes()
    parser = RecordParser()
    others = [replace(record, build=7) for record in (*parser.feed(data), *parser.finish())]
    records.write_bytes(data + b"".join(map(encode, others)))
    error = refuse("diff", model_of(records), records)
    assert "one build of digits.tflite can be compared at a time" in error and "build 0x00000007u" in error
    options = ("--optimize", "size", "--labels", records.parent / "ten names.txt")
    said = succeed("diff", model_of(records), records, *options)
    assert f"{len(others)} records of another build, 0x00000007u, were not compared" in said


@pytest.mark.parametrize(
    "command",
    ["", "rm -rf /", "microfold build x --help", "microfold build x --no-such-option", "microfold build 'x"],
)
def test_commands_of_a_dump_that_are_none(command: str) -> None:
    with pytest.raises(InputError, match="must contain the `microfold build` command of its build"):
        parse_command(command)


def test_a_dump_writes_no_files_and_gives_compilers_no_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = "microfold build digits.tflite --dump-ir=ir --timing --external-flags=-fplugin=evil.so --taps"
    found = compile_as(BuildText("0", "", "digits.tflite", command), MODEL, True)
    assert list(tmp_path.iterdir()) == [] and found.options.external_flags == ()
    assert found.origin is not None and found.origin.command == command


def test_a_port_without_pyserial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "serial", None)
    assert "pip install 'microfold[serial]'" in refuse("diff", MODEL, "--port", "/dev/null")


def test_ports_that_cannot_be_opened(tmp_path: Path) -> None:
    need_modules("serial")
    for port in (tmp_path / "none", tmp_path, "nonsense://x"):
        error = refuse("diff", MODEL, "--port", port)
        assert "a port must be readable at 115200 baud" in error


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX's")
def test_a_serial_port(records: Path, tmp_path: Path) -> None:
    """The device was there before: the first bytes are the rest of something."""
    need_modules("serial")
    import pty
    import tty

    data = records.read_bytes()
    master, slave = pty.openpty()
    tty.setraw(slave)

    def send() -> None:
        with contextlib.suppress(OSError):  # nobody reads the rest
            os.write(master, data[3000:] + data)

    threading.Thread(target=send, daemon=True).start()
    kept = tmp_path / "kept.bin"
    try:
        options = ("--port", os.ttyname(slave), "--baud", 921600, "--runs", 1, "-o", kept)
        said = succeed("diff", model_of(records), *options)
    finally:
        os.close(slave)
        os.close(master)
    assert "22 tensors equal the reference" in said
    assert kept.read_bytes() in data[3000:] + data  # opening a port drops what has come before
    succeed("diff", model_of(records), kept)


def test_how_long_a_port_is_read(records: Path) -> None:
    """As long as runs are missing, and records come."""
    data = records.read_bytes()
    pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)]
    queue = iter(pieces)
    assert len(line.collect(lambda: next(queue), 1, 5.0)) < len(data)
    queue = iter([data[100:], data])  # a run's end without its beginning counts nothing
    assert line.collect(lambda: next(queue), 1, 5.0) == data[100:]
    assert line.collect(lambda: b"", 1, 0.05) == b""


def test_a_port_that_goes_away(records: Path) -> None:
    """Behind the first record, that is the end of the dump; before, it is an error."""
    pieces = iter([records.read_bytes()[:500]])

    def read() -> bytes:
        try:
            return next(pieces)
        except StopIteration:
            raise OSError("gone") from None

    assert len(line.collect(read, 1, 5.0)) == 500
    with pytest.raises(OSError, match="gone"):
        line.collect(read, 1, 5.0)
