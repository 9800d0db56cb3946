"""The page on extending microfold, followed literally: its blocks go where it says, its commands run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from microfold.simulate.toolchain import missing_tools
from tests.sampling import sampled

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "extending.md"
FOLDERS = ("microfold", "templates", "targets", "tests", "docs", "examples", ".ci")
MODELS = ("cnn_int8",)

# By heading: files, those written by a command included; lines in blocks.
LIMITS = {
    "One operand: STABLEHLO_CBRT": (4, 40),
    "Two operands: STABLEHLO_REMAINDER": (4, 40),
    "A pass": (3, 100),
    "A target: your own core": (1, 40),
    "A kernel variant": (3, 100),
}
# What the table of operators takes. That of passes is another file, which nobody edits.
WRITTEN = {"One operand: STABLEHLO_CBRT": 1, "Two operands: STABLEHLO_REMAINDER": 1}
COMMANDS = ("A kernel variant", "Automatic parts", "A pass", "A target: your own core")


class Block(Struct, frozen=True):
    """A fenced block, and where it belongs.

    Attributes:
        where: ``below`` or ``above`` a line of the file; empty if it is the whole of a new file.
    """

    file: str
    where: str
    line: str
    text: str


def sections() -> dict[str, str]:
    """The page by headings, whatever their level."""
    parts = re.split(r"^##+ (.+)\n", PAGE.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(text: str) -> list[Block]:
    """The blocks of a section that belong to files, in order."""
    head = r"^\*\*`([^`]+)`\*\*(?:, (below|above) `([^`]+)`)?:\n\n```\w+\n(.*?)^```$"
    return [Block(*found) for found in re.findall(head, text, re.M | re.S)]


def commands(text: str) -> list[str]:
    """What the blocks of shell commands of a section run; what needs a simulated core, where there is one."""
    found = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S))
    simulated = re.compile(r"microfold verify .* (-t|--target) ")
    single = re.findall(r"^(?:cat .*?^END|[^\n]+)$", found, re.M | re.S)
    return [line for line in single if not (missing_tools() and simulated.match(line))]


def apply(block: Block, folder: Path) -> None:
    """Creates the file, or inserts the lines with the indentation of the one beside them."""
    path = folder / block.file
    if not block.where:
        assert not path.exists(), f"{block.file} is there already"
        path.write_text(block.text, encoding="utf-8")
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    (place,) = (i for i, line in enumerate(lines) if line.strip() == block.line)
    indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    new = [f"{indent}{line}" for line in block.text.splitlines(keepends=True)]
    at = place + (block.where == "below")
    path.write_text("".join([*lines[:at], *new, *lines[at:]]), encoding="utf-8")


class Copy(Struct, frozen=True):
    """A copy of the repository with all that the page adds.

    Attributes:
        environment: for commands of its shell.
    """

    folder: Path
    environment: dict[str, str]

    def run(self, command: str) -> str:
        """What a command of the page prints; it must end well."""
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """All changes of the page, and its command that writes tables."""
    folder = tmp_path_factory.mktemp("extended")
    left_out = shutil.ignore_patterns("goldens", "made", "found")
    for part in FOLDERS:
        shutil.copytree(ROOT / part, folder / part, ignore=left_out)
    for part in ROOT.iterdir():
        if part.is_file():
            shutil.copy(part, folder)
    made = Path("tests", "models", "made")
    (folder / made).mkdir(parents=True)
    for model in MODELS:
        shutil.copy(ROOT / made / f"{model}.tflite", folder / made)
    for text in sections().values():
        for block in blocks(text):
            apply(block, folder)
    programs = folder / "bin"
    programs.mkdir()
    for name, module in (("python", ""), ("microfold", "-m microfold")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    copy = Copy(folder, {**os.environ, "PATH": path, "PYTHONPATH": str(folder), "COLUMNS": "200"})
    only = "functions_of_floats or table_of_passes"
    (command,) = commands(re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)[0])
    copy.run(f"{command} -k '{only}'")
    yield copy
    shutil.rmtree(folder)


@pytest.mark.parametrize("heading", LIMITS)
def test_a_change_is_as_small_as_promised(heading: str) -> None:
    found = blocks(sections()[heading])
    files, lines = LIMITS[heading]
    assert found
    assert len({block.file for block in found}) + WRITTEN.get(heading, 0) <= files
    assert sum(len(block.text.splitlines()) for block in found) + WRITTEN.get(heading, 0) <= lines


def test_the_page_states_the_limits() -> None:
    table = PAGE.read_text(encoding="utf-8").split("## ")[0]
    stated = re.findall(r"^\| \[[^|]* \| (\d+) \| (\d*) ?\|$", table, re.M)
    assert stated == [("4", "40"), ("3", ""), ("1", ""), ("3", "")]


def test_every_block_of_a_walkthrough_has_its_place(tmp_path: Path) -> None:
    for heading in LIMITS:
        text = sections()[heading]
        assert text.count("\n```") == 2 * (len(blocks(text)) + text.count("\n```sh\n")), heading
        for block in blocks(text):
            copied = tmp_path / block.file
            copied.parent.mkdir(parents=True, exist_ok=True)
            if block.where and not copied.exists():
                shutil.copy(ROOT / block.file, copied)
            apply(block, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("heading", sampled(COMMANDS, 4))
def test_commands_of_the_page(heading: str, extended: Copy) -> None:
    """Builds, verifications bit for bit, and tests."""
    found = commands(sections()[heading])
    assert len(found) > 2 - bool(missing_tools())
    printed = "".join(extended.run(command) for command in found)
    assert {
        "Automatic parts": "remainder",
        "A pass": "abs %y: softmax %a is never negative",
        "A target: your own core": "STM32L4+: Cortex-M4F at 120 MHz",
        "A kernel variant": "s8_clip__dsp *",  # is chosen
    }[heading] in printed


@pytest.mark.slow
def test_all_of_it_is_taken_up_by_tests_over_everything(extended: Copy) -> None:
    """Registries with the changes are as those tests want them."""
    chosen = "tests/transform/test_pipeline.py tests/ops/test_rows.py tests/ops/test_type_rules.py"
    extended.run(f"python -m pytest -q {chosen} -k 'remainder or rule_or_a_reason or named_as or last'")


@pytest.mark.slow
def test_code_of_the_page_is_as_the_project_wants_it(extended: Copy) -> None:
    pytest.importorskip("ruff", reason="needs ruff")
    files = [block.file for text in sections().values() for block in blocks(text)]
    named = " ".join(sorted({file for file in files if file.endswith(".py")}))
    extended.run(f"python -m ruff check {named}")
    extended.run(f"python -m ruff format --check {named}")
