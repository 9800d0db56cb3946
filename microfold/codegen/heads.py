"""Heads of the functions that a template defines: their sections, and what they take.

Templates write a head from the beginning of a line, ``static …``, and the brace of its body on a line of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator

from microfold.codegen.names import WORD
from microfold.support.frozen import frozen

_STATIC = "static "


@frozen
class Head:
    """What stands before the body of a function.

    Attributes:
        start: where, in the code.
    """

    start: int
    text: str

    @property
    def name(self) -> str:
        before = self.text.partition("(")[0]
        return before[len(before.rstrip(WORD)) :]

    @property
    def parameter_types(self) -> tuple[str, ...]:
        parameters = self.text.partition("(")[2].rpartition(")")[0]
        return tuple(part.strip().rstrip(WORD).strip() for part in parameters.split(","))


def heads(code: str) -> Iterator[Head]:
    """The functions that the code defines. A constant's braces stand behind an equals sign."""
    start = code.find(_STATIC)
    while start >= 0:
        if start == 0 or code[start - 1] == "\n":
            text = code[start : code.find("\n{", start)]
            if text.endswith(")") and not any(mark in text for mark in ";={}"):
                yield Head(start, text)
        start = code.find(_STATIC, start + 1)


def parameter_types(code: str, name: str) -> tuple[str, ...]:
    """Types of the parameters of a function that is defined in the code.

    Raises:
        ValueError: it is not.
    """
    for head in heads(code):
        if head.name == name:
            return head.parameter_types
    raise ValueError(f"a template must define the function that it is given the name of; {name} is not")


def in_section(code: str, section: str) -> str:
    """The code with an attribute of every function that it defines, on a line of its own.

    Args:
        section: what gives a function its section, e.g. a macro.
    """
    parts: list[str] = []
    done = 0
    for head in heads(code):
        parts += [code[done : head.start], section, "\n"]
        done = head.start
    return "".join([*parts, code[done:]])


def exported(code: str, name: str, section: str) -> tuple[str, str]:
    """A declaration of a function that other files call, and the code that defines it for them.

    Args:
        section: what gives each function that the code defines its section, see `in_section`.

    Raises:
        ValueError: the code does not define it.
    """
    for head in heads(code):
        if head.name == name:
            text = head.text.removeprefix(_STATIC)
            return f"{text};", in_section(code, section).replace(
                f"{section}\n{head.text}", f"{section}\n{text}"
            )
    raise ValueError(f"a template must define the function that it is given the name of; {name} is not")


def kept_apart(code: str, name: str, attribute: str) -> str:
    """The code with an attribute that keeps a function from being made part of its callers."""
    marked = f"{_STATIC}{attribute} "
    for head in heads(code):
        if head.name == name:
            return code[: head.start] + marked + code[head.start + len(_STATIC) :]
    return code
