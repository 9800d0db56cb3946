"""The page of limits has the values of the code, and all of `microfold.ir.limits`."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from microfold.ir import limits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "limits.md"
ROW = re.compile(r"^\| `([a-z0-9_/]+)\.py: ([A-Z_]+)` \| ([^|]+) \|", re.MULTILINE)


def number(text: str) -> int:
    """Return the value of text such as 32, 2^24 or 2^31 - 1."""
    power, _, less = text.partition(" - ")
    base, _, exponent = power.partition("^")
    return int(base) ** int(exponent or 1) - int(less or 0)


def test_values_are_those_of_the_code() -> None:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert rows
    for path, name, value in rows:
        module = import_module(f"microfold.{path.replace('/', '.')}")
        assert getattr(module, name) == number(value.strip()), (path, name)


def test_all_limits_are_listed() -> None:
    listed = {name for path, name, _ in ROW.findall(PAGE.read_text(encoding="utf-8")) if path == "ir/limits"}
    assert listed == {name for name in vars(limits) if name.isupper()}
