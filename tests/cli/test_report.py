"""`microfold report` and `build --html`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from microfold.cli import report as command
from microfold.reporting import what_if
from microfold.reporting.profile import read_profile
from tests.command_line import microfold, refuse, refuse_as_json, succeed
from tests.reporting.page.html_reader import read_html
from tests.reporting.test_schema import faults

ROOT = Path(__file__).resolve().parents[2]
CNN = ROOT / "tests" / "models" / "made" / "cnn_int8.tflite"
SINE = ROOT / "examples" / "sine" / "sine.tflite"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def sections(path: Path) -> set[str]:
    return {e.attributes["id"] for e in read_html(path.read_text(encoding="utf-8")).all("section")}


USUAL = {"memory", "layers", "graph", "headroom", "kernels", "pruning"}


def test_a_page_of_a_model(tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    assert succeed("report", SINE, "-o", page) == f"Written to {page}.\n"
    assert sections(page) == USUAL
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]
    title = read_html(page.read_text(encoding="utf-8")).all("title")[0].text
    assert title.startswith("sine for cortex-m4 ")


def test_a_build_and_its_page_appear_together(tmp_path: Path) -> None:
    succeed("build", SINE, "-o", tmp_path / "plain")
    succeed("build", SINE, "-o", tmp_path / "both", "--html")
    plain = {path.name: path.read_bytes() for path in (tmp_path / "plain").iterdir()}
    both = {path.name: path.read_bytes() for path in (tmp_path / "both").iterdir()}
    page = both.pop("sine_report.html")
    assert both == plain, "all else is the same"
    build_id = json.loads(plain["sine_report.json"])["build_id"]
    assert build_id in page.decode()
    # What stands in the way of one keeps all of them away.
    (tmp_path / "taken" / "sine_report.html").mkdir(parents=True)
    assert "is a folder" in refuse("build", SINE, "-o", tmp_path / "taken", "--html")
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["sine_report.html"]


def test_a_page_of_a_stored_report(tmp_path: Path) -> None:
    succeed("build", SINE, "-o", tmp_path, "--html")
    stored = tmp_path / "sine_report.json"
    succeed("report", stored, "-o", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "sine_report.html").read_bytes()
    printed = json.loads(succeed("report", stored, "-o", tmp_path / "again.html", "--json"))
    assert printed == json.loads(stored.read_text(encoding="utf-8"))
    for option in (["-t", "cortex-m4"], ["--optimize", "size"], ["--what-if"], ["--numerics", "relaxed"]):
        assert "--what-if and --tradeoffs require a model" in refuse("report", stored, *option)


def test_other_builds_and_profiles(tmp_path: Path) -> None:
    succeed("build", SINE, "-t", "cortex-m4", "--optimize", "size", "-o", tmp_path)
    (tmp_path / "profile.json").write_text('{"0": 520, "1": 900}', encoding="utf-8")
    other, page = tmp_path / "sine_report.json", tmp_path / "page.html"
    succeed("report", SINE, "--compare", other, "--profile", tmp_path / "profile.json", "-o", page)
    assert sections(page) == USUAL | {"comparison", "profile"}


def test_what_if(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = [("cortex-m3", "size"), ("cortex-m4", "balanced"), ("nowhere", "speed")]
    monkeypatch.setattr(what_if, "alternatives", lambda: tried)
    printed = json.loads(
        succeed("report", SINE, "--what-if", "-o", tmp_path / "page.html", "--json", "--timing")
    )
    assert faults(printed) == []
    found = printed["what_if"]
    assert [(each["target"], each["optimize"]) for each in found] == tried
    assert found[1]["estimated_instructions"] == printed["estimated_instructions"]
    assert found[0]["estimated_instructions"] > found[1]["estimated_instructions"]
    assert found[2]["problem"].startswith("unknown target 'nowhere'") and found[2]["flash"] is None
    assert sections(tmp_path / "page.html") == USUAL | {"what-if"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([SINE, "-o", ""], "must have a file name"),
        ([SINE, "-o", SINE.parent], "is a folder"),
        ([SINE, "--compare", SINE], "must be JSON"),
        ([SINE, "--compare", "missing.json"], "cannot read missing.json"),
        ([SINE, "--profile", SINE], "must be JSON"),
        ([SINE, "--profile", "/dev/zero"], "it is a device"),
        (["missing.json"], "cannot read missing.json"),
        (["missing.tflite"], "cannot read missing.tflite"),
        ([SINE, "-t", "cortex-m99"], "unknown target"),
    ],
)
def test_refusals(
    arguments: list[Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refuse("report", *arguments)
    assert message in refuse_as_json("report", *arguments)["error"]
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_compiled_for_a_comparison_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_compile", lambda *_: pytest.fail("it was compiled"))
    (tmp_path / "other.json").write_text('{"report_version": 2}', encoding="utf-8")
    result = microfold("report", SINE, "--compare", tmp_path / "other.json", "-o", tmp_path / "page.html")
    assert result.status == 2
    assert "$.microfold_version is missing; " in result.err and "; and " in result.err
    assert not (tmp_path / "page.html").exists()


def test_the_documentation_page() -> None:
    """Its options are there, and its profile is one."""
    text = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    known = {
        option for name in ("report", "build", "bench") for option in OPTION.findall(succeed(name, "--help"))
    }
    assert set(OPTION.findall(text)) <= known
    (example,) = re.findall(r"```json\n(.*?)```", text, re.S)
    names = ["conv2d", "depthwise_conv2d", "softmax"]
    assert read_profile(json.loads(example), Path("ticks.json"), names).ticks == {
        0: 589674,
        1: 294528,
        2: 203,
    }


def test_the_picture_is_small() -> None:
    content = (ROOT / "docs" / "images" / "report.png").read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) < 200_000
