"""Choices between ways to compute the same: estimates make them, or else what was measured.

Whatever compiles a model asks `Choices.take` where it has several ways to the same bits, and says what each
of them is estimated to take. Questions of one kind have one name, and one answer. A trace is the answers that
are given whatever estimates say: with it, the same program is built again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import cast

from microfold.errors import InputError
from microfold.support.frozen import frozen

# The alternatives to take, by the choices' names.
Trace = Mapping[str, str]
# Of the alternatives that there are, what they are estimated to take, in one unit.
Estimates = Callable[[], Mapping[str, float]]


@frozen
class Choice:
    """A question that came up while a model was compiled.

    Attributes:
        name: e.g. ``layers``, or a pass with the kind of what it decides about.
        estimates: what each alternative is estimated to take; of one question, they have one unit.
        taken: one of them.
    """

    name: str
    estimates: Mapping[str, float]
    taken: str


class Choices:
    """Answers to the questions of a compilation.

    Args:
        trace: alternatives to take; what is not among those that there are is passed over.
        listing: all questions are put into `asked`, not only those that the trace answers.
    Attributes:
        answers: to all questions, by their names.
    """

    def __init__(self, trace: Trace | None = None, *, listing: bool = False):
        self.trace: Trace = dict(trace or {})
        self._listing = listing
        self._asked: dict[str, Choice] = {}
        self.answers: dict[str, str] = {}

    @property
    def asked(self) -> list[Choice]:
        """The questions with several answers, in the order in which they came up first."""
        return [choice for choice in self._asked.values() if len(choice.estimates) > 1]

    def take(self, name: str, best: str, estimates: Estimates) -> str:
        """The alternative to take.

        Args:
            best: what is taken by estimates, of whatever.
            estimates: called only if they are needed: they may take long to make.
        """
        wanted, taken = self.trace.get(name), best
        if wanted is not None or self._listing:
            found = estimates()
            taken = wanted if wanted is not None and wanted in found else best
            self._asked[name] = Choice(name, found, taken)
        self.answers[name] = taken
        return taken


def trace_text(trace: Trace) -> str:
    """Return a trace as text: equal traces have equal texts, and the empty one has none."""
    return json.dumps(trace, sort_keys=True) if trace else ""


def trace_of(text: str) -> Trace:
    """Return the trace of a text that `trace_text` has made.

    Raises:
        InputError: the text is something else.
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
