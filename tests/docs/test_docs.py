"""The documentation names what is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from microfold.frontend.operators import IMPORTERS
from microfold.ir.op import REGISTRY
from microfold.ops.elementwise.float_binary import float_binary_operators
from microfold.ops.elementwise.unary import FUNCTIONS, Unary
from microfold.pipeline import default_pipeline
from microfold.transform import available, location, summary
from tests.golden import Golden
from tests.needs import need_modules, need_tools
from tests.reporting.schema_page import tables

ROOT = Path(__file__).resolve().parents[2]


# Between these comments, pages have what tests write from the registries.
WRITTEN = "<!-- written by `pytest tests/docs/test_docs.py --update-golden` -->\n"
END = "<!-- end -->"


def check_written(request: pytest.FixtureRequest, page: str, text: str) -> None:
    """The page has this text between the comments, or gets it."""
    docs = Golden(ROOT / "docs", bool(request.config.getoption("--update-golden")), "tests/docs/test_docs.py")
    head, rest = (ROOT / "docs" / page).read_text(encoding="utf-8").split(WRITTEN)
    docs.check(page, f"{head}{WRITTEN}{text}\n{END}{rest.partition(END)[2]}")


def test_fields_of_the_report_are_written_from_its_schema(request: pytest.FixtureRequest) -> None:
    schema = ROOT / "microfold" / "reporting" / "report.schema.json"
    check_written(request, "report-json.md", tables(json.loads(schema.read_text(encoding="utf-8"))))


def test_functions_of_floats_are_written_into_the_table_of_operators(request: pytest.FixtureRequest) -> None:
    one = [name for name in FUNCTIONS if not Unary.is_quantized(name)]
    two = [op.name for op in float_binary_operators()]
    own = {"DIV", "NEG", "SIGN"}  # have rows of their own: they take integers, too
    names = sorted(IMPORTERS.keys() & {name.upper() for name in (*one, *two)} - own)
    rows = ["| functions of elements | types |", "|---|---|", f"| {', '.join(names)} | float32 |"]
    check_written(request, "operators.md", "\n".join(rows))


def test_operator_table_is_complete() -> None:
    """Every operator that can be imported has a row, and no row names another."""
    table = (ROOT / "docs" / "operators.md").read_text()
    rows = [line.split("|")[1] for line in table.splitlines() if re.match(r"\| [A-Z]", line)]
    words = r"\b(?:[A-Z][A-Z0-9_]+|Signal\w+)\b"
    named = re.findall(words, " ".join(rows))
    assert len(set(named)) == len(named)
    # Custom operators are CUSTOM and a name, which may be in capitals, too.
    imported = set(re.findall(words, " ".join(IMPORTERS)))
    assert set(named) == imported, "docs/operators.md has a row for each operator"


def test_every_operator_has_a_domain() -> None:
    """Each in one row; where the row says so, int16 zero points may be any.

    That of other functions of two floats is the domain of all, which the section says.
    """
    section = (ROOT / "docs" / "reference.md").read_text().split("## Domain\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    points = {name: row[2].strip() for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert sum(len(re.findall(r"`(\w+)`", row[0])) for row in rows) == len(points)
    floats = {op.name: "0" for op in float_binary_operators()}
    points = floats | points
    assert set(points) == set(REGISTRY), 'docs/reference.md has a row for each, in the section "Domain"'
    unlike = [
        name
        for name, op in REGISTRY.items()
        if op.any_zero_point != (points[name] == "any" or "-32768" in points[name])
    ]
    assert unlike == []


def test_links_of_the_pages_exist() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_files_that_the_page_on_kernels_names_exist() -> None:
    named = set(re.findall(r"`([\w/.]+\.(?:py|j2))`", (ROOT / "docs" / "kernels.md").read_text()))
    there = {
        path.as_posix()
        for folder in ("microfold", "templates", "tests")
        for path in (ROOT / folder).rglob("*.*")
    }
    assert len(named) > 20
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in there)] == []


def readme_commands() -> list[str]:
    """The two commands that set up a machine."""
    return re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)[:2]


def test_continuous_integration_runs_the_commands_of_the_readme(tmp_path: Path) -> None:
    """.ci/run takes them from the README; what runs them is replaced by something that prints them.

    What runs beside them fails, which is told at the end.
    """
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    shutil.copy(ROOT / "README.md", tmp_path)
    for name in ("bash", "make", ".ci/setup"):
        script = '#!/bin/sh\necho "$0 $*" >>"$LOG"\ncase "$*" in *release) echo broken; exit 3; esac\n'
        (tmp_path / name).write_text(script, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}
    done = subprocess.run(
        ["/bin/bash", ".ci/run"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (3, "broken")
    lines = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    beside = [f"{tmp_path}/make {names}" for names in ("docs", "audit release")]
    one, two = (f"{tmp_path}/bash -ec {text.strip()}" for text in readme_commands())
    setups = [".ci/setup browser", ".ci/setup prover"]
    exhaustive, analyze = [line for line in lines if line not in beside][4:]
    assert [line for line in lines if line not in beside][:4] == [*setups, one, two]
    assert exhaustive.startswith(f"{tmp_path}/make test-exhaustive PART=")
    assert analyze.startswith(f"{tmp_path}/make analyze PART=")
    assert sorted(line for line in lines if line in beside) == sorted(beside)
    assert lines.index(one) < lines.index(beside[0]) < lines.index(exhaustive)


def test_the_commands_of_the_readme_need_nothing_to_be_there() -> None:
    """Neither make nor sudo are on a bare machine."""
    for command in readme_commands():
        assert command.startswith(".ci/setup")
        assert "sudo" not in command
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(readme_commands()[1].partition("make ")[2].split()) <= targets


def test_table_of_passes_is_complete(request: pytest.FixtureRequest) -> None:
    used = default_pipeline().names()
    rows = ["| pass | level | default | what it does |", "|---|---|---|---|"]
    for name, item in sorted(available().items()):
        link = f"[`{name}`](../{location(name).replace('.', '/')}.py)"
        level = f"{item.opt_level}, mandatory" if item.mandatory else str(item.opt_level)
        rows.append(f"| {link} | {level} | {'yes' if name in used else ''} | {summary(name)} |")
    check_written(request, "passes.md", "\n".join(rows))


@pytest.mark.slow
def test_session_of_quantisation_prints_what_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    need_modules("ai_edge_quantizer")
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    ((code, printed),) = re.findall(r"```py\n(.*?)```\n\nprints\n\n```\n(.*?)```", text, re.DOTALL)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out == printed
    assert (tmp_path / "build" / "cnn_int8.tflite").is_file()


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("passes.md", ["fully_connected computes %a: float32[1,2]", "canonicalize_ops: "]),
        ("api.md", ["digits_helpers.h ", "[[0.", "int8 [[0.", "exact, 20 tensors over 2 input sets"]),
    ],
)
def test_code_of_a_page_runs(
    page: str, printed: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of Python, one after the other, as a reader would type them."""
    need_tools("cc")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    shown = capsys.readouterr().out
    assert [part for part in printed if part not in shown] == []
