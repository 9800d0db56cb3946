"""Choices between bit-identical alternatives, decided by estimates or by measurements.

When a compiler stage has several ways to compute the same bits, it calls `Choices.take` with the estimated
cost of each alternative. Choices of the same kind share a name and one answer. A trace is a set of fixed
answers that override the estimates: with the trace of a program, the same program can be built again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import cast

from msgspec import Struct

from microfold.errors import InputError

# Alternative to take, by the name of the choice.
Trace = Mapping[str, str]
# Returns the estimated cost of each available alternative, all in the same unit.
Estimates = Callable[[], Mapping[str, float]]


class PassChoice(Struct, frozen=True):
    """Choice that a compilation has made.

    Attributes:
        name: e.g. ``layers``, or the name of a pass and the kind of node that it decides about.
        estimates: estimated cost of each alternative, all in the same unit.
        taken: name of the alternative that was taken.
    """

    name: str
    estimates: Mapping[str, float]
    taken: str


class Choices:
    """Choices of one compilation. A trace can decide some of them.

    Args:
        trace: alternatives to take. Unknown names and unavailable alternatives are ignored.
        listing: whether `asked` lists all choices, not only those in the trace.
    Attributes:
        answers: alternative taken, by the name of the choice.
    """

    def __init__(self, trace: Trace | None = None, *, listing: bool = False):
        self.trace: Trace = dict(trace or {})
        self._listing = listing
        self._asked: dict[str, PassChoice] = {}
        self.answers: dict[str, str] = {}

    @property
    def asked(self) -> list[PassChoice]:
        """Choices with several alternatives, in the order of their first use."""
        return [choice for choice in self._asked.values() if len(choice.estimates) > 1]

    def take(self, name: str, best: str, estimates: Estimates) -> str:
        """Return the alternative to take.

        Args:
            best: alternative to take if the trace does not decide.
            estimates: function that returns the estimates; it can be slow, and is called only if needed.
        """
        wanted, taken = self.trace.get(name), best
        if wanted is not None or self._listing:
            found = estimates()
            taken = wanted if wanted is not None and wanted in found else best
            self._asked[name] = PassChoice(name, found, taken)
        self.answers[name] = taken
        return taken


def trace_text(trace: Trace) -> str:
    """Return a trace as text. Equal traces have equal texts; the text of an empty trace is empty."""
    return json.dumps(trace, sort_keys=True) if trace else ""


def trace_of(text: str) -> Trace:
    """Return the trace in a text that `trace_text` has returned.

    Raises:
        InputError: the text is not a trace.
    """
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(taken, str) for taken in found.values()):
        raise InputError(f"a trace must be a JSON object of texts; it is {text[:80]!r}")
    return cast("dict[str, str]", found)
