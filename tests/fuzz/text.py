"""Damaged text forms of graphs."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_graph
from microfold.errors import GraphError, MicrofoldError, TextFormError
from microfold.frontend import tflite
from microfold.ir.domain import admit
from microfold.ir.text import parse, to_text
from microfold.ir.tree import to_tree
from tests.frontend import models
from tests.fuzz.engine import Case, Fault, Random
from tests.fuzz.files import MOST_MACS, bases

SMALL = 20_000  # characters of text
EVERY = 3  # of so many models one is a text: models come in families

_TOKEN = re.compile(r'"[^"]*"|%[\w./;:-]+|@[\w.-]+|[-+]?[\d.]+(?:e[-+]?\d+)?|\w+|->|\S')
_CLASSES = {
    "name": re.compile(r"%.*"),
    "number": re.compile(r"[-+]?[\d.].*"),
    "word": re.compile(r"\w+"),
    "string": re.compile(r'".*'),
}
EXTREMES = (
    *("0", "-1", "1", "2", "3", "127", "128", "255", "65535", "2147483647", "-2147483648", "2147483648"),
    *("9999999999999999999999", "1e38", "1e39", "1e-45", "5e-324", "1e308", "1e400", "inf", "-inf"),
    *("nan", "-0.0", "0x10", "1_000", "٣", "true", "none"),
)  # fmt: skip
ODD = (
    "",
    "\x00",
    "\u202e",
    "é",
    "\ud7ff",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "|",
    ",",
    '"',
    "%",
    "=",
    "\t",
    "#",
    ";",
)


class Edit(NamedTuple):
    """A change of one line: of its token number `token`, or of the whole."""

    kind: str
    line: int
    token: int = 0
    text: str = ""


@cache
def _texts() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in bases()[::EVERY]:
        try:
            text = to_text(tflite.load(models.MADE / f"{name}.tflite"))
        except MicrofoldError:
            continue
        if len(text) < SMALL:
            found[name] = text
    return found


@cache
def _words() -> dict[str, list[str]]:
    """Tokens of all texts, by class."""
    tokens = sorted({token for text in _texts().values() for token in _TOKEN.findall(text)})
    return {name: [t for t in tokens if form.fullmatch(t)] for name, form in _CLASSES.items()}


class Text:
    """Words become others of their class, numbers extreme, lines move, brackets vanish."""

    suffix = ".mf"
    seconds = 10

    def draw(self, rng: Random) -> Case:
        names = sorted(_texts())
        name = names[int(rng.integers(len(names)))]
        lines = _texts()[name].splitlines()
        return Case(name, tuple(self._edit(rng, lines) for _ in range(int(rng.choice([1, 1, 2, 3, 6])))))

    def _edit(self, rng: Random, lines: list[str]) -> Edit:
        line = int(rng.integers(len(lines)))
        kind = str(rng.choice(["drop", "twice", "move", "foreign", *["token"] * 16]))
        if kind == "move":
            return Edit(kind, line, int(rng.integers(len(lines))))
        if kind == "foreign":
            names = sorted(_texts())
            other = _texts()[names[int(rng.integers(len(names)))]].splitlines()
            return Edit(kind, line, 0, other[int(rng.integers(len(other)))])
        if kind != "token":
            return Edit(kind, line)
        tokens = _TOKEN.findall(lines[line]) or [""]
        index = int(rng.integers(len(tokens)))
        own = next((name for name, form in _CLASSES.items() if form.fullmatch(tokens[index])), "word")
        choices = (
            [_words()[own] or [""], EXTREMES, ODD, tokens] if own != "name" else [_words()[own], tokens, ODD]
        )
        chosen = choices[int(rng.choice(len(choices)))]
        return Edit(kind, line, index, str(chosen[int(rng.integers(len(chosen)))]))

    def payload(self, case: Case) -> bytes:
        lines = _texts()[case.base].splitlines()
        for edit in case.edits:
            old = lines[edit.line]
            if edit.kind == "drop":
                lines[edit.line] = ""
            elif edit.kind == "twice":
                lines[edit.line] = f"{old}\n{old}"
            elif edit.kind == "move":
                lines[edit.line], lines[edit.token] = lines[edit.token], old
            elif edit.kind == "foreign":
                lines[edit.line] = f"{old}\n{edit.text}"
            else:
                found = list(_TOKEN.finditer(old))
                if edit.token < len(found):
                    token = found[edit.token]
                    lines[edit.line] = old[: token.start()] + edit.text + old[token.end() :]
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    def check(self, payload: bytes) -> str:
        graph = parse(payload.decode("utf-8", "surrogatepass"))
        try:
            admit(graph)
        except GraphError as error:  # of a pass's result it would be a fault
            raise TextFormError(str(error)) from error
        to_tree(graph)
        text = to_text(graph)
        if to_text(parse(text)) != text:
            raise Fault("the text form of what was parsed is read as something else")
        if sum(node.macs() for node in graph.nodes) > MOST_MACS:
            return "parsed"
        emit(compile_graph(graph, target.load("host")))
        return "compiled"
