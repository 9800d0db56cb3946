"""Heads of the functions in rendered templates: names, parameter types and section attributes.

Templates write a head at the beginning of a line, ``static …``, and the opening brace of the body on a
separate line.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from microfold.codegen.names import WORD

_STATIC = "static "


class FunctionHead(Struct, frozen=True):
    """Text of a function definition before its body.

    Attributes:
        start: position in the code.
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


def heads(code: str) -> Iterator[FunctionHead]:
    """Yield the heads of the functions that the code defines. Constants are skipped by their equals sign."""
    start = code.find(_STATIC)
    while start >= 0:
        if start == 0 or code[start - 1] == "\n":
            text = code[start : code.find("\n{", start)]
            if text.endswith(")") and not any(mark in text for mark in ";={}"):
                yield FunctionHead(start, text)
        start = code.find(_STATIC, start + 1)


def parameter_types(code: str, name: str) -> tuple[str, ...]:
    """Return the parameter types of a function that the code defines.

    Raises:
        ValueError: the code does not define it.
    """
    for head in heads(code):
        if head.name == name:
            return head.parameter_types
    raise ValueError(f"a template must define the function that `name` names; {name} is not defined")


def in_section(code: str, section: str) -> str:
    """Return the code with an attribute line before every function definition.

    Args:
        section: attribute that sets a function's section, e.g. a macro.
    """
    parts: list[str] = []
    done = 0
    for head in heads(code):
        parts += [code[done : head.start], section, "\n"]
        done = head.start
    return "".join([*parts, code[done:]])


def exported(code: str, name: str, section: str) -> tuple[str, str]:
    """Return a prototype of a function for other files, and the code with the function not static.

    Args:
        section: attribute that sets a function's section, see `in_section`.

    Raises:
        ValueError: the code does not define it.
    """
    for head in heads(code):
        if head.name == name:
            text = head.text.removeprefix(_STATIC)
            return f"{text};", in_section(code, section).replace(
                f"{section}\n{head.text}", f"{section}\n{text}"
            )
    raise ValueError(f"a template must define the function that `name` names; {name} is not defined")


def kept_apart(code: str, name: str, attribute: str) -> str:
    """Return the code with an attribute that prevents inlining of a function."""
    marked = f"{_STATIC}{attribute} "
    for head in heads(code):
        if head.name == name:
            return code[: head.start] + marked + code[head.start + len(_STATIC) :]
    return code
