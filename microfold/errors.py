"""Errors that a user can cause. Each message states the rule, the values found, and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

# Start of each line in a list of problems.
PROBLEM = "  - "
# Option values with which the compilation succeeds, by name.
Remedy = Mapping[str, int | str]
# Effect of each value of io that keeps inputs out of the arena.
_WHERE = {
    "caller": "which keeps inputs and outputs in the caller's memory",
    "rows": "with which the caller passes the input row by row",
}


class MicrofoldError(Exception):
    """Base class of all errors caused by the input. The command line prints the message and exits with 2."""


class ModelFormatError(MicrofoldError):
    """Error: the file is not a well-formed model."""


class TargetError(MicrofoldError):
    """Error: a target description is unknown or inconsistent."""


class TypeRuleError(MicrofoldError):
    """Error: the operands of an operator break its type rule."""


class TextFormError(MicrofoldError):
    """Error: the text form of a graph cannot be parsed. The message names the line."""


class GraphError(MicrofoldError):
    """Error: a graph breaks an invariant of the IR; raised by `verify`."""


class NoReferenceError(MicrofoldError):
    """Error: an operator has no reference, because other hardware or a user's function computes it."""


class ToolError(MicrofoldError):
    """Error: an external tool (compiler, simulator) is missing or has failed."""


class RunError(ToolError):
    """Error: a compiled program faulted, or did not finish within its time limit."""


class InputError(MicrofoldError):
    """Error: a value passed by the caller has the wrong shape, type or range."""


class DeclarationError(MicrofoldError, ValueError):
    """Error: an operator, a kernel or a function of a table is declared wrongly, here or in a user's file."""


class BudgetError(InputError):
    """Error: no build was found that fits the RAM or flash limit.

    Attributes:
        rule: the limit that is exceeded.
        found: the sizes found, what limits them, and whether they are proved minimal.
        remedies: options, each of which is enough by itself.
        otherwise: any other remedy; may be empty.
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
        """Return the error for an arena and state that exceed `limit` bytes, but fit `least` bytes."""
        rule = f"arena and state must fit {limit} bytes of RAM"
        return cls(rule, found, [{"ram": least}], otherwise)

    @classmethod
    def of_flash(cls, limit: int, found: Sequence[str], least: int) -> BudgetError:
        """Return the error for constants and code that exceed `limit` bytes, but fit `least` bytes."""
        return cls(f"constants and code must fit {limit} bytes of flash", found, [{"flash": least}])

    def least(self, name: str) -> int | None:
        """Return the smallest limit of ``ram`` or ``flash`` alone that is enough, in bytes, or None."""
        alone = [remedy[name] for remedy in self.remedies if [*remedy] == [name]]
        return min((size for size in alone if isinstance(size, int)), default=None)


def _text(remedy: Remedy, with_memory: bool) -> str:
    """Return a remedy in words. With `with_memory`, sizes name their memory, RAM or flash."""
    if "io" in remedy:
        return f"use io={remedy['io']}, {_WHERE[str(remedy['io'])]}"
    memories = {"ram": " bytes of RAM", "flash": " bytes of flash"}
    sizes = [f"{size}{memories[name] if with_memory else ''}" for name, size in remedy.items()]
    return f"allow {' and '.join(sizes)}"


class Problem(Struct, frozen=True):
    """Part of a model that cannot be compiled.

    Attributes:
        where: location that the user can find in a model viewer, e.g. ``operator 3 (CONV_2D) "conv1"``.
        reason: the violated rule, with the values found.
        hint: remedy; may be empty.
    """

    where: str
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" + (f"; {self.hint}" if self.hint else "")


def listed(problems: Iterable[object]) -> str:
    """Return the lines of a message about several problems."""
    return "\n".join(f"{PROBLEM}{problem}" for problem in problems)


class UnsupportedModelError(MicrofoldError):
    """Error: a well-formed model has parts that cannot be compiled. The message lists all of them."""

    def __init__(self, model: str, problems: Sequence[Problem]):
        self.model = model
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problem{'s' if len(self.problems) != 1 else ''}"
        super().__init__(f"{model} cannot be compiled: {count}\n{listed(self.problems)}")
