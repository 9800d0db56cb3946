"""Jinja2 tag for the headers that a template's C code needs: ``{% uses "string.h" %}``.

The tag leaves marks in the rendered text, so that it works in macros, loops and blocks. `split` removes the
marks.
"""

from __future__ import annotations

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from msgspec import Struct

# Character that does not occur in C code, and that trimming does not remove.
_MARK = "\x01"


class Rendered(Struct, frozen=True):
    """A rendered template.

    Attributes:
        uses: names that it declares to use, e.g. headers.
    """

    text: str
    uses: frozenset[str]


class Uses(Extension):
    """Implementation of the tag, for expressions separated by commas; empty strings are ignored."""

    tags = {"uses"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        names = [parser.parse_expression()]
        while parser.stream.skip_if("comma"):
            names.append(parser.parse_expression())
        return nodes.Output([self.call_method("mark", names)]).set_lineno(line)

    def mark(self, *names: str) -> str:
        return "".join(f"{_MARK}{name}{_MARK}" for name in names if name)


def trim(text: str) -> str:
    """Trim a text as Jinja's filter `trim` does, and keep its marks, in front."""
    parts = text.split(_MARK)
    marks = "".join(f"{_MARK}{name}{_MARK}" for name in parts[1::2])
    return marks + "".join(parts[::2]).strip()


def split(text: str) -> Rendered:
    """Return the text without marks, and the names in the marks."""
    parts = text.split(_MARK)
    return Rendered("".join(parts[::2]), frozenset(parts[1::2]))
