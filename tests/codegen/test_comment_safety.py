"""Whatever a model or a target calls things, the C stays C: nothing ends a comment or a string."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen.emit import emit
from microfold.codegen.layout import comment_text, string_text
from microfold.compiler import compile_graph
from microfold.ir.text import parse
from microfold.options import Options
from microfold.support import resources
from tests.needs import need_tools

EVIL = [
    "*/ int x;",
    "/*",
    "**//",
    "*\\",
    "??/",
    "a\\",
    'a"b',
    "\n#error",
    "\r",
    "\0",
    "\x1b[2J",
    "é",
    "/*/",
    "//",
]

# What the templates of a model put into comments and strings: identifiers, numbers, and texts that Python has
# made safe (`label_text`, `comment_text`). The list is complete; what is new here must be looked at.
SAFE = {
    "name", "version", "model.name", "model.macro", "macro", "note", "usage", "what", "header", "slot.label",
    "place.comment", "port.index", "port.type.size", "model.options.weights_section", "origin.sha256",
    "suffix", "field.name", "helpers.lowest", "helpers.highest", "stream.layers", "stream.arrivals",
    "stream.restarts",
    # Names of memories are checked where targets are read.
    "model.regions.context.name", 'model.regions.context.section("data")',
    "model.regions.arenas[loop.index0].name", 'model.regions.arenas[loop.index0].section("data")',
    # Macros of names of parameters, which are identifiers, and words of ours.
    "memory_docs", "given_docs", "model.holder_of",
    # Parts of the arena are called arena, arena_2 …
    "part", "', before its first row' if model.pushes",
    # Names of files and of builds are identifiers.
    "file", "model.shared.name",
    # Numbers of frames and runs.
    'model.sliding.step ~ " frames" if model.sliding.step > 1 else "frame"', "model.sliding.frames",
    "model.sliding.warmup_runs",
    'loaded | join(", ", attribute="name")',
    '(" *     %-44s %s" | format(code, remark)).rstrip()',
    '(" * " ~ text) | wordwrap(107, wrapstring="\\n * ", break_on_hyphens=False)',
}  # fmt: skip
FOREIGN = ("target.name", "library.name", "functions", "cpu_flags", "build_target", "description")


def expressions(text: str) -> list[str]:
    """Expressions in comments and strings of a template; braces in them do not end a string."""
    text = re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL)
    parts = re.findall(r'/\*.*?\*/|"(?:[^"\\\n{}]|\\.|\{\{.*?\}\})*"', text, flags=re.DOTALL)
    found = [each for part in parts for each in re.findall(r"\{\{-?(.*?)-?\}\}", part, flags=re.DOTALL)]
    return [each.strip() for each in found]


def test_all_templates_of_a_model() -> None:
    for path in sorted((resources.template_dir() / "model").iterdir()):
        for each in expressions(path.read_text()):
            safe = each in SAFE or each.split("(")[0] in SAFE or "_safe" in each
            assert safe, f"{path.name}: {each} goes into a comment or a string"


def test_all_templates() -> None:
    """Those of kernels see our own numbers and words; what others have named must go through a filter."""
    for path in sorted(resources.template_dir().rglob("*.*")):
        if path.parent.name == "__pycache__":
            continue
        for each in expressions(path.read_text()):
            assert not any(word in each for word in FOREIGN) or "_safe" in each, f"{path}: {each}"


@pytest.mark.parametrize("text", EVIL)
def test_text(text: str) -> None:
    for again in (text, text * 3, f"a{text}b{text}"):
        safe = comment_text(again)
        assert not re.search(r"\*/|/\*|\?\?|[^ -~]", safe)
        assert not re.search(r'["\\]|\?\?|[^ -~]', string_text(again))


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("single_file", [True, False])
def test_compiled(tmp_path: Path, compiler: str, single_file: bool) -> None:
    """Every name there is, with everything in it that C could mistake."""
    need_tools(compiler)
    evil = "".join(EVIL).replace("\\", "\\\\").replace('"', '\\"')
    evil = "".join(c if " " <= c <= "~" else f"\\u{ord(c):04x}" for c in evil)
    graph = parse(
        f'graph @"{evil}"(%"{evil}x": float32[1,2]) -> (%"{evil}y") {{\n'
        f'  state %"{evil}s": float32[1,2] initial [1.0, 2.0] next %"{evil}y"\n'
        f'  %"{evil}w" = constant float32[2,2] [1.0, 2.0, 3.0, 4.0]\n'
        f'  %"{evil}a": float32[1,2] = fully_connected(%"{evil}x", %"{evil}w")\n'
        f'  %"{evil}y": float32[1,2] = add(%"{evil}a", %"{evil}s")\n}}\n'
    )
    core = replace(target.load("host"), name="".join(EVIL), description="".join(EVIL))
    for name, text in emit(compile_graph(graph, core, Options(single_file=single_file))).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert text.isascii()
    flags = [
        "-std=c99",
        "-trigraphs",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wcomment",
        "-Werror",
        "-fsyntax-only",
    ]
    sources = [path.name for path in tmp_path.glob("*.c")]
    done = subprocess.run(
        [compiler, *flags, *sources], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_target_that_needs_other_flags(tmp_path: Path) -> None:
    """The message of the preprocessor is one string, whatever the target's flags are."""
    need_tools("gcc")
    core = replace(target.load("cortex-m4"), name="x", cpu_flags=('-D"a\\',))
    graph = parse(
        "graph @g(%x: int8[1,64] q(1.0, 0)) -> (%y) {\n  %y: int8[1,64] q(1.0, 0) = maximum(%x, %x)\n}\n"
    )
    for name, text in emit(compile_graph(graph, core)).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["gcc", "-std=c99", "-fsyntax-only", "g.c"], cwd=tmp_path, capture_output=True, text=True
    )
    assert "unterminated" not in done.stderr + done.stdout
    assert "missing terminating" not in done.stderr
