"""Reports are what `report.schema.json` says."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from microfold import target
from microfold.cli.common import to_json
from microfold.compiler import compile_file, compile_graph
from microfold.ir.text import parse
from microfold.options import Options
from microfold.program import Program
from microfold.report import data
from microfold.report.data import build_report
from tests.cli.test_passes import SCALED
from tests.codegen.graphs import accumulator
from tests.command_line import succeed
from tests.needs import CROSS_TOOLS, need_tools

if TYPE_CHECKING:
    import jsonschema

MADE = Path(__file__).resolve().parents[1] / "models" / "made"
CNN = MADE / "cnn_int8.tflite"


@cache
def schema() -> jsonschema.Draft202012Validator:
    import jsonschema  # takes seconds, which processes that only collect tests need not wait

    text = (Path(data.__file__).parent / "report.schema.json").read_text(encoding="utf-8")
    jsonschema.Draft202012Validator.check_schema(json.loads(text))
    return jsonschema.Draft202012Validator(json.loads(text))


def faults(report: Any) -> list[str]:
    return sorted(f"{fault.json_path}: {fault.message}" for fault in schema().iter_errors(report))


def as_data(program: Program) -> Any:
    return json.loads(to_json(build_report(program, None)))


@pytest.mark.parametrize("name", ["cnn_int8", "attn_f32", "lt_gru_f32", "preact_bn_int8", "stream_int8"])
def test_models(name: str) -> None:
    assert faults(as_data(compile_file(MADE / f"{name}.tflite", target.load("cortex-m4")))) == []


def test_graphs() -> None:
    relaxed = Options(numerics="relaxed", io="caller")
    for graph in (accumulator(), parse(SCALED)):
        for options in (Options(), relaxed, Options(taps=True)):
            assert faults(as_data(compile_graph(graph, target.load("cortex-m55"), options))) == []


def test_what_is_missing_or_unknown_is_a_fault() -> None:
    report = as_data(compile_file(CNN, target.load("host")))
    del report["layers"][0]["kernel"]
    assert faults(report | {"more": 1}) == [
        "$.layers[0]: 'kernel' is a required property",
        "$: Additional properties are not allowed ('more' was unexpected)",
    ]


def test_files_of_a_build(tmp_path: Path) -> None:
    succeed("build", CNN, "-o", tmp_path, "--name", "digits")
    report = json.loads((tmp_path / "digits_report.json").read_text())
    assert faults(report) == []
    assert f"#define DIGITS_BUILD_ID {report['build_id']}\n" in (tmp_path / "digits.h").read_text()


@pytest.mark.slow
def test_what_a_core_measured() -> None:
    need_tools(*CROSS_TOOLS)
    report = json.loads(succeed("bench", CNN, "-t", "cortex-m4", "--json"))
    assert faults(report) == []
    assert report["instructions"] > 0
    assert all(layer["instructions"] > 0 for layer in report["layers"])
