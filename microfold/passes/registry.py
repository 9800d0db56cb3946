"""Registry of passes by name, used to resolve the names of required passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from microfold.errors import InputError

if TYPE_CHECKING:
    from microfold.passes.decorators import PassFactory
    from microfold.passes.kinds import Pass

Finder = Callable[[], "Mapping[str, Pass | PassFactory[Any]]"]

# Finders, in order of priority. Importing `microfold.transform` adds its own.
FINDERS: list[Finder] = []


def register_passes(finder: Finder) -> None:
    """Register a finder of passes. It is called at every lookup of a name."""
    FINDERS.append(finder)


def registered_passes() -> dict[str, Any]:
    """Return every pass of all finders by name; passes with options as factories."""
    known: dict[str, Any] = {}
    for finder in FINDERS:
        known = {**finder(), **known}
    return known


def find_pass(name: str) -> Pass:
    """Return the pass with a name, with the default values of its options.

    Raises:
        InputError: the name is unknown, or the pass has an option without a default.
    """
    known = registered_passes()
    if name not in known:
        close = get_close_matches(name, known, 1)
        meant = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known)) or 'none'}"
        raise InputError(f"unknown pass {name!r}; {meant}")
    item = known[name]
    return item() if hasattr(item, "form") else item
