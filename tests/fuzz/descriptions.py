"""Damaged target descriptions."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.text import parse
from microfold.support import resources
from tests.fuzz.engine import Case, Fault, Random

VALUES = (
    *('""', '"x"', '"*/\\nint injected;\\n/*"', '"a\\nb"', '"\\u0000"', '"\\\\"', '"é"', '"??/"'),
    *('"../../x"', '"-o/tmp/x"', "0", "-1", "1e400", "inf", "nan", "-inf", "1.5", "99999999999999999999"),
    *("true", "1979-05-27", "07:32:00", "[]", "[1]", '[""]', '["fpu"]', '["mve"]', '["dsp", "dsp"]', "[[]]"),
    *("[inf]", '["\\u0000"]', "{}", "{a = 1}"),
    *('{a = {b = {c = "d"}}}', "{source = 1}", "[" * 50 + "]" * 50, '"' + "x" * 3000 + '"'),
)  # fmt: skip
KEYS = (
    "name",
    "description",
    "features",
    "compiler",
    "cpu_flags",
    "board",
    "timing",
    "x",
    '""',
    '"a b"',
    "a.b.c",
)
HEADS = ("[timing]", "[timing.branches]", "[[timing]]", "[a.b]", "[", "[name]")
ODD = ("\x00", "\x7f", "\r", "=", '"', "'''", "\ud7ff", "#")
_GRAPH = """
graph @g(%x: int8[1,4,4,4] q(0.1, 3)) -> (%y) {
  %w = constant int8[4,1,1,4] q(0.5, 0) [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
  %y: int8[1,4,4,4] q(0.2, -5) = conv2d(%x, %w) {ATTRIBUTES}
}
""".replace("ATTRIBUTES", 'strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0)), layout="NHWC"')


class Edit(NamedTuple):
    kind: str
    line: int
    text: str


@cache
def _bases() -> dict[str, str]:
    return {
        path.stem: path.read_text(encoding="utf-8") for path in sorted(resources.target_dir().glob("*.toml"))
    }


@cache
def _graph() -> Graph:
    return parse(_GRAPH)


class Descriptions:
    """Values of other types, keys that are not there, heads in other places, odd characters."""

    suffix = ".toml"
    seconds = 10

    def draw(self, rng: Random) -> Case:
        def one(items: tuple[str, ...] | list[str]) -> str:
            return items[int(rng.integers(len(items)))]

        base = one(sorted(_bases()))
        lines = _bases()[base].splitlines()
        edits: list[Edit] = []
        for _ in range(int(rng.choice([1, 1, 2, 3]))):
            line, kind = (
                int(rng.integers(len(lines))),
                one(["value"] * 6 + ["add", "drop", "head", "odd", "twice"]),
            )
            text = {
                "value": one(VALUES),
                "add": f"{one(KEYS)} = {one(VALUES)}",
                "head": one(HEADS),
                "odd": one(ODD),
            }
            edits.append(Edit(kind, line, text.get(kind, "")))
        return Case(base, tuple(edits))

    def payload(self, case: Case) -> bytes:
        lines = _bases()[case.base].splitlines()
        for kind, line, text in case.edits:
            old = lines[line]
            if kind == "value":
                lines[line] = re.sub(r"=.*", lambda _, text=text: f"= {text}", old, count=1)
            elif kind == "drop":
                lines[line] = ""
            elif kind == "odd":
                half = len(old) // 2
                lines[line] = old[:half] + text + old[half:]
            else:
                lines[line] = f"{old}\n{old if kind == 'twice' else text}"
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    def check(self, payload: bytes) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.toml"
            path.write_bytes(payload)
            described = target.load(str(path))
            files = emit(compile_graph(_graph(), described))
            if any(
                line.lstrip().startswith("int injected")
                for text in files.values()
                for line in text.splitlines()
            ):
                raise Fault("a string of the description has become code")
            for name, text in files.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            if described.features:  # their code needs another compiler
                return "compiled"
            command = ["cc", "-std=c99", "-w", "-fsyntax-only", *(n for n in files if n.endswith(".c"))]
            built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if built.returncode:
                raise Fault(f"the C does not compile\n{built.stderr[:2000]}")
        return "compiled and built"
