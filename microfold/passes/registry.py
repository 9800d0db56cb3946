"""Passes by name: where a pass names others that it requires, they are looked up here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from microfold.errors import InputError

if TYPE_CHECKING:
    from microfold.passes.decorators import PassFactory
    from microfold.passes.kinds import Pass

Finder = Callable[[], "Mapping[str, Pass | PassFactory[Any]]"]

# Asked in this order; `microfold.transform` adds its own when it is imported.
_finders: list[Finder] = []


def register_passes(finder: Finder) -> None:
    """Make passes known by name; the finder is called when a name is first looked up."""
    _finders.append(finder)


def find_pass(name: str) -> Pass:
    """Return the pass of a name; one with options gets its defaults.

    Raises:
        InputError: no pass has the name, or it cannot do without options.
    """
    known: dict[str, Any] = {}
    for finder in _finders:
        known = {**finder(), **known}
    if name not in known:
        close = get_close_matches(name, known, 1)
        meant = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known)) or 'none'}"
        raise InputError(f"there is no pass {name!r}; {meant}")
    item = known[name]
    return item() if hasattr(item, "form") else item
