"""What a template says that its C needs: ``{% uses "string.h" %}``, where and as long as it needs it.

The tag leaves marks in the rendered text, so that it works in macros, loops and blocks alike; `split` takes
them out again.
"""

from __future__ import annotations

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from microfold.support.frozen import frozen

# No C has it, and nothing that trims text takes it away.
_MARK = "\x01"


@frozen
class Rendered:
    """A rendered template.

    Attributes:
        uses: what it says that it needs.
    """

    text: str
    uses: frozenset[str]


class Uses(Extension):
    """The tag: expressions, separated by commas; empty strings say nothing."""

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
    """Jinja's filter of that name, for text with marks: these are kept, in front."""
    parts = text.split(_MARK)
    marks = "".join(f"{_MARK}{name}{_MARK}" for name in parts[1::2])
    return marks + "".join(parts[::2]).strip()


def split(text: str) -> Rendered:
    """The text without marks, and what they say."""
    parts = text.split(_MARK)
    return Rendered("".join(parts[::2]), frozenset(parts[1::2]))
