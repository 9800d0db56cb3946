"""Errors that a user can cause: each says the rule, then the values, then what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# What a line begins with that is a problem of several.
PROBLEM = "  - "
# Options of a compilation that would do, by name.
Remedy = Mapping[str, int | str]
# Where inputs lie if the arena does not hold them.
_WHERE = {
    "caller": "where inputs and outputs lie in the caller's memory",
    "rows": "where the input is handed in row by row",
}


class MicrofoldError(Exception):
    """Base of every error that is the input's fault; the command line prints it and exits with 2."""


class ModelFormatError(MicrofoldError):
    """The file is not a well-formed model."""


class TargetError(MicrofoldError):
    """A target description is unknown or inconsistent."""


class TypeRuleError(MicrofoldError):
    """An operator's operands break its type rule."""


class TextFormError(MicrofoldError):
    """The text form of a graph does not parse; the message carries the line."""


class GraphError(MicrofoldError):
    """A graph breaks an invariant of the IR (found by `verify`)."""


class NoReferenceError(MicrofoldError):
    """An operator's meaning is not known here: other hardware or a function of the user's computes it."""


class ToolError(MicrofoldError):
    """An outside tool (compiler, simulator) is missing or failed."""


class RunError(ToolError):
    """A program that was built has failed where it ran: it faulted, or did not come to its end in time."""


class InputError(MicrofoldError):
    """A value handed in by the caller has the wrong shape, type or range."""


class BudgetError(InputError):
    """Nothing that was found fits the RAM or the flash that is allowed.

    Attributes:
        rule: what is allowed.
        found: what decides, and how far that is known.
        remedies: options that would do, each by itself.
        otherwise: what else would help; may be empty.
    """

    def __init__(
        self,
        rule: str,
        found: Sequence[str],
        remedies: Sequence[Remedy],
        otherwise: str = "",
    ):
        self.rule = rule
        self.found = tuple(found)
        self.remedies = tuple(remedies)
        self.otherwise = otherwise
        both = {name for remedy in remedies for name in remedy} >= {"ram", "flash"}
        ways = [_text(remedy, both) for remedy in remedies] + [otherwise] * bool(otherwise)
        super().__init__("; ".join([rule, *found]) + (f": {', or '.join(ways)}" if ways else ""))

    @classmethod
    def of_ram(cls, limit: int, found: Sequence[str], least: int, otherwise: str) -> BudgetError:
        """Arena and state are too large; with `least` bytes they are not."""
        rule = f"arena and state must fit {limit} bytes of RAM"
        return cls(rule, found, [{"ram": least}], otherwise)

    @classmethod
    def of_flash(cls, limit: int, found: Sequence[str], least: int) -> BudgetError:
        """Constants and code are too large; with `least` bytes they are not."""
        return cls(f"constants and code must fit {limit} bytes of flash", found, [{"flash": least}])

    def least(self, name: str) -> int | None:
        """The fewest bytes of ``ram`` or ``flash`` alone that would do, if any would."""
        alone = [remedy[name] for remedy in self.remedies if [*remedy] == [name]]
        return min((size for size in alone if isinstance(size, int)), default=None)


def _text(remedy: Remedy, with_memory: bool) -> str:
    """What to do; `with_memory`: bytes are said to be of RAM, or of flash."""
    if "io" in remedy:
        return f"take io={remedy['io']}, {_WHERE[str(remedy['io'])]}"
    memories = {"ram": " bytes of RAM", "flash": " bytes of flash"}
    sizes = [f"{size}{memories[name] if with_memory else ''}" for name, size in remedy.items()]
    return f"allow {' and '.join(sizes)}"


@dataclass(frozen=True)
class Problem:
    """One part of a model that cannot be compiled.

    Attributes:
        where: what the user finds again in a model viewer, e.g. ``operator 3 (CONV_2D) "conv1"``.
        reason: the rule that is broken, with the values.
        hint: what would help; may be empty.
    """

    where: str
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" + (f"; {self.hint}" if self.hint else "")


class UnsupportedModelError(MicrofoldError):
    """A model is well-formed but has parts that cannot be compiled; lists all of them at once."""

    def __init__(self, model: str, problems: Sequence[Problem]):
        self.model = model
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problem{'s' if len(self.problems) != 1 else ''}"
        lines = "\n".join(f"{PROBLEM}{problem}" for problem in self.problems)
        super().__init__(f"{model} cannot be compiled: {count}\n{lines}")
