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
from microfold.reporting.data import build_report
from microfold.reporting.json_schema import FILES, json_schema, schema_text
from microfold.reporting.schema import BuildReport
from tests.cli.test_passes import SCALED
from tests.codegen.graphs import accumulator
from tests.command_line import succeed
from tests.golden import Golden
from tests.needs import CROSS_TOOLS, need_tools

if TYPE_CHECKING:
    import jsonschema

MADE = Path(__file__).resolve().parents[1] / "models" / "made"
CNN = MADE / "cnn_int8.tflite"


@cache
def schema() -> jsonschema.Draft202012Validator:
    import jsonschema  # takes seconds, which processes that only collect tests need not wait

    made = json_schema(BuildReport)
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def faults(report: Any) -> list[str]:
    return sorted(f"{fault.json_path}: {fault.message}" for fault in schema().iter_errors(report))


def as_data(program: Program) -> Any:
    return json.loads(to_json(build_report(program, None)))


def test_files_are_generated(request: pytest.FixtureRequest) -> None:
    """Each field has a description."""
    update = bool(request.config.getoption("--update-golden"))
    files = Golden(Path(json_schema.__code__.co_filename).parent, update, "tests/reporting/test_schema.py")
    for name, kind in FILES.items():
        assert json.loads(schema_text(kind)) == json_schema(kind)
        parts = json_schema(kind)["$defs"].values()
        assert all("description" in each for part in parts for each in (part, *part["properties"].values()))
        files.check(name, schema_text(kind))


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
