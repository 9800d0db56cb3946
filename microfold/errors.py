"""Errors that a user can cause: each says the rule, then the values, then what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# What a line begins with that is a problem of several.
PROBLEM = "  - "


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


class InputError(MicrofoldError):
    """A value handed in by the caller has the wrong shape, type or range."""


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
