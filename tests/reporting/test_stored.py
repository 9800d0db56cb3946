"""Reports and profiles from files: what is well-formed is read, all else refused with every fault named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from microfold import target
from microfold.cli.common import to_json
from microfold.compiler import compile_file
from microfold.errors import InputError
from microfold.reporting.data import build_report
from microfold.reporting.profile import read_profile
from microfold.reporting.stored import load_report, read_report

MADE = Path(__file__).resolve().parents[1] / "models" / "made"


def plain(name: str = "cnn_int8") -> Any:
    program = compile_file(MADE / f"{name}.tflite", target.load("cortex-m4"))
    return json.loads(to_json(build_report(program, None)))


def written(folder: Path, content: object) -> Path:
    path = folder / "given.json"
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_stored_report_is_the_one_that_was_made(tmp_path: Path) -> None:
    program = compile_file(MADE / "stream_int8.tflite", target.load("cortex-m4"))
    made = build_report(program, None)
    assert load_report(written(tmp_path, to_json(made))) == made


def test_reports_of_before_are_read() -> None:
    """Those without what has been added since."""
    report = plain()
    del report["needs"], report["memories"]
    for layer in report["layers"]:
        del layer["refused"]
        if layer["accumulator"]:
            del layer["accumulator"]["type_bits"]
    for block in report["blocks"]:
        del block["kind"]
    assert read_report(report, "old.json").blocks[0].kind == "result"


def test_all_faults_are_told_at_once() -> None:
    report = plain()
    report["ram"]["arena"] = -1
    report["layers"][0]["macs"] = 1.5
    report["layers"][1]["fused"] = "relu"
    report["layers"][2]["name"] = None
    report["edges"][0]["from"]["kind"] = "friend"
    del report["flash"]["weights"]
    with pytest.raises(InputError) as error:
        read_report(report, "bad.json")
    assert str(error.value) == (
        "bad.json: $.ram.arena must be a whole number from 0; it is -1; $.flash.weights is missing; "
        "$.layers[0].macs must be a whole number from 0; it is 1.5; "
        "$.layers[1].fused must be a list; it is 'relu'; $.layers[2].name must be a text; it is None; "
        "$.edges[0].from.kind must be one of input, layer, output, state; it is 'friend'"
    )
    report["layers"] = [3] * 20
    with pytest.raises(InputError, match=r"; and \d+ more$"):
        read_report(report, "bad.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["edges"][0]["to"].update(index=99), r"\$.edges\[0\].to must be an existing end"),
        (lambda r: r["blocks"][0].update(last_layer=99), r"must be alive during existing layers; .* to 99"),
        (lambda r: r["blocks"][0].update(first_layer=3, last_layer=2), "it is from 3 to 2"),
        (lambda r: r.update(macs=1 << 70), "it is too large"),
        (lambda r: r.update(macs=True), "it is True"),
        (
            lambda r: r["layers"][0]["accumulator"].update(type_bits=1 << 40),
            "one of 32, 64; it is 1099511627",
        ),
        (lambda r: r["layers"][0]["accumulator"].update(type_bits=32.0), "one of 32, 64; it is 32.0"),
        (lambda r: r["options"].update(optimize="fast"), "one of balanced, size, speed; it is 'fast'"),
        (lambda r: r.update(origin=[]), "must be an object; it is a list"),
        (lambda r: r.update(model={}), "must be a text; it is an object"),
        (lambda r: r.update(report_version=7), "report_version 2; got 7: build the model again"),
        (lambda r: r.update(report_version=[]), "build the model again"),
    ],
)
def test_what_contradicts_itself_is_refused(change: Any, message: str) -> None:
    report = plain()
    change(report)
    with pytest.raises(InputError, match=message):
        read_report(report, "bad.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must be JSON: Expecting value"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("9" * 5000, "must be JSON: "),
        ([], "got none"),
        ({"layers": []}, "got none"),
    ],
)
def test_files_that_are_no_reports(content: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_report(written(tmp_path, content))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(InputError, match="byte 7 is not UTF-8"):
        load_report(path)


NAMES = ["conv2d", "softmax", "dense"]


def test_profiles_name_layers_or_count_them() -> None:
    profile = read_profile({"softmax": 310, "0": 1200}, Path("folder/given.json"), NAMES)
    assert profile.ticks == {0: 1200, 1: 310}
    assert profile.source == "given.json"


def test_profiles_of_dumps() -> None:
    layers = [{"name": NAMES[1], "ticks": 310, "share": 1.0}, {"name": NAMES[0], "ticks": None}]
    profile = read_profile({"runs": [], "profile": {"runs": 2, "layers": layers}}, Path("diff.json"), NAMES)
    assert profile.ticks == {1: 310}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "must be an object that maps layers to ticks"),
        ({"profile": {"layers": [{"name": 1}]}}, r"name must be a text; it is 1; .*ticks is missing"),
        ({"profile": {"layers": []}}, "must be an object that maps layers to ticks"),
        ([1, 2, 3], "must be an object"),
        ({"3": 1, "-1": 2}, "numbers from 0 to 2, or names of layers; unknown: '3', '-1'$"),
        ({f"x{i}": 1 for i in range(9)}, "'x3', 'x4' and 4 more$"),
        ({"1": 1, "softmax": 2}, "only once; given by number and by name: 'softmax'$"),
        ({"0": -1}, "whole numbers of up to 64 bits; wrong for: '0'$"),
        ({"0": 1.5, "x": 1}, "unknown: 'x'; ticks must be .*: '0'$"),
        ({"0": True}, "wrong for: '0'$"),
        ({"0": 1 << 64}, "wrong for: '0'$"),
    ],
)
def test_profiles_that_are_none(content: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_profile(content, Path("given.json"), NAMES)
