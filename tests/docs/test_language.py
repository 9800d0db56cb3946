"""Mechanical rules of the language in `microfold/`; `tests/` are exempt for now.

Each test lists all violations of one rule.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# No sentence begins with these words: a docstring or a comment must name its subject.
BANNED = re.compile(r"(What|Of|Th[eo]se|This|Which|Where|Nothing|It|They|Likewise|Also|Same|How)\b|None[: ]")
# Functions have the imperative, "Return"; classes are things.
NO_VERB = re.compile(r"(The|A|An|(Return|Yield|Count|Check|Compute|Add|Find|Make|Raise|Remove|Write)s)\b")
VERB = re.compile(r"(Return|Yield|Compute|Add|Find|Make|Raise|Remove|Write|Hold|Represent)s?\b")
# Lines of at most 110 columns, except for those that cannot be broken.
LENGTH, EXEMPT = 110, re.compile(r"https://|# type: ignore|^ *\S+$")
# A definition as ruff formats it, up to the first line of its docstring. Syntax trees take ten times as long.
DEFINITION = re.compile(
    r"^(?P<indent>|    )(?:async )?(?P<kind>def|class) (?P<name>\w+)"
    r"(?:.*:|[^\n]*[(\[]\n(?:(?P=indent)    .*\n)*?(?P=indent)[)\]].*:)(?: \.\.\.|  #.*)*\n"
    r'(?:(?P=indent)    r?"""(?P<doc>.*?)(?:"""|$))?',
    re.M,
)


class Definition(NamedTuple):
    """Function, method or class, with the line before it and the first line of its docstring."""

    place: str
    before: str
    indent: str
    kind: str
    name: str
    doc: str | None


TEXTS = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.glob("microfold/**/*.py"))}


@cache
def definitions() -> list[Definition]:
    return [
        Definition(f"{path}:{len(lines) + 1}", lines[-1] if lines else "", *match.groups())
        for path, text in TEXTS.items()
        for match in DEFINITION.finditer(text)
        for lines in (text[: match.start()].splitlines(),)
    ]


def documented(kind: str) -> Iterator[tuple[str, str]]:
    """Yield place and first line of all docstrings; properties count as things, like classes."""
    for each in definitions():
        thing = each.kind == "class" or "property" in each.before
        if each.doc is not None and thing == (kind == "class"):
            yield each.place, each.doc


def assert_none(violations: Iterable[str]) -> None:
    """Fail with the list of all violations."""
    text = "\n".join(violations)
    assert not text, f"violations:\n{text}"


def test_all_definitions_are_found() -> None:
    counted = sum(len(re.findall(r"^(?:    )?(?:def|class) ", text, re.M)) for text in TEXTS.values())
    assert len(definitions()) == counted


def test_docstrings_name_their_subject() -> None:
    modules = [(path, text[3:].split("\n")[0]) for path, text in TEXTS.items() if text.startswith('"""')]
    lines = (*modules, *documented("def"), *documented("class"))
    assert_none(f"{place}: {line}" for place, line in lines if BANNED.match(line))


def test_comments_name_their_subject() -> None:
    """Check the first line of every comment that has lines of its own."""
    comment = re.compile(r"^(?! *#).*\n *# (.+)$", re.M)
    comments = ((path, match[1]) for path, text in TEXTS.items() for match in comment.finditer(text))
    assert_none(f"{path}: {line}" for path, line in comments if BANNED.match(line))


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    assert_none(f"{place}: {line}" for place, line in documented("def") if NO_VERB.match(line))


def test_docstrings_of_classes_begin_with_a_noun() -> None:
    assert_none(f"{place}: {line}" for place, line in documented("class") if VERB.match(line))


def test_public_functions_and_classes_have_docstrings() -> None:
    """Check definitions of modules; decorators such as `imports` state the purpose of other functions."""
    assert_none(
        f"{each.place}: {each.name}"
        for each in definitions()
        if each.doc is None and not each.indent and not each.name.startswith("_")
        if each.kind == "class" or not each.before.startswith(("@", ")"))
    )


def test_public_classes_have_different_names() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for each in definitions():
        if each.kind == "class" and not each.indent and not each.name.startswith("_"):
            places[each.name].append(each.place)
    assert_none(f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1)


def test_lines_fit() -> None:
    assert_none(
        f"{path}:{number}"
        for path, text in TEXTS.items()
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > LENGTH and not EXEMPT.search(line)
    )
