"""Tokeniser of the text form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn, TypeVar

from microfold.errors import TextFormError

BARE_NAME = r"(?:[A-Za-z0-9_./;$]|-(?!>))+(?::[0-9]+)?"
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKENS = re.compile(
    "|".join(
        f"(?P<{kind}>{pattern})"
        for kind, pattern in {
            "space": r"[ \t\r\n]+|//[^\n]*",
            "value": rf"%(?:{_STRING}|{BARE_NAME})(?:#[0-9]+)?",
            "graph": rf"@(?:{_STRING}|{BARE_NAME})",
            "dense": r"dense<[^>\n]*>",
            "number": r"-?(?:(?:inf|nan)\b|[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?d?)",
            "string": _STRING,
            "word": r"[A-Za-z_][A-Za-z0-9_]*",
            "sign": r"->|[()\[\]{},:=|]",
        }.items()
    )
)
_DESCRIPTIONS = {
    "value": "a value (%name)",
    "graph": "a graph's name (@name)",
    "number": "a number",
    "string": "a string",
    "word": "a word",
}

T = TypeVar("T")


class Token(NamedTuple):
    """Token of the text form, with its kind and the index of its first character."""

    kind: str
    text: str
    position: int


class Cursor:
    """Cursor over the tokens of a text. An error states the expected token and the one found."""

    def __init__(self, text: str, source: str):
        self.text = text
        self.source = source
        self.tokens = list(self._tokenize())
        self.index = 0

    def _tokenize(self) -> Iterator[Token]:
        position = 0
        while position < len(self.text):
            match = _TOKENS.match(self.text, position)
            if match is None:
                self.fail(position, f"unexpected character {self.text[position]!r}")
            if match.lastgroup != "space":
                yield Token(str(match.lastgroup), match.group(), position)
            position = match.end()
        yield Token("end", "the end of the text", position)

    def fail(self, where: Token | int, message: str) -> NoReturn:
        position = where if isinstance(where, int) else where.position
        line = self.text.count("\n", 0, position) + 1
        column = position - (self.text.rfind("\n", 0, position) + 1) + 1
        raise TextFormError(f"{self.source}:{line}:{column}: {message}")

    @property
    def next(self) -> Token:
        return self.tokens[self.index]

    def take(self) -> Token:
        token = self.next
        self.index += token.kind != "end"
        return token

    def expected(self, what: str) -> NoReturn:
        token = self.next
        self.fail(token, f"expected {what}; found {token.text if token.kind == 'end' else repr(token.text)}")

    def sees(self, text: str) -> bool:
        return self.next.text == text and self.next.kind in ("sign", "word")

    def accept(self, text: str) -> bool:
        if not self.sees(text):
            return False
        self.index += 1
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.expected(repr(text))

    def expect_kind(self, kind: str) -> Token:
        if self.next.kind != kind:
            self.expected(_DESCRIPTIONS[kind])
        return self.take()

    def expect_end(self) -> None:
        if self.next.kind != "end":
            self.expected("the end of the text")

    def separated(self, item: Callable[[], T], opening: str, closing: str) -> list[T]:
        """Return the items between two signs, separated by commas; a trailing comma is allowed."""
        self.expect(opening)
        items: list[T] = []
        while not self.accept(closing):
            items.append(item())
            if not self.accept(","):
                self.expect(closing)
                break
        return items

    def integer(self) -> int:
        token = self.expect_kind("number")
        if not re.fullmatch(r"-?[0-9]{1,20}", token.text):
            self.fail(token, f"expected an integer; found {token.text!r}")
        return int(token.text)

    def name(self, token: Token) -> str:
        """Return the name in a value or graph token."""
        body = token.text[1:]
        if not body.startswith('"'):
            return body.partition("#")[0]
        return self.string(token, body.rpartition('"')[0] + '"')

    def string(self, token: Token, text: str) -> str:
        try:
            return json.loads(text)
        except ValueError as error:
            self.fail(token, f"not a JSON string: {error}")
