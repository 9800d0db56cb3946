"""Options of a compilation: typed fields, handed along."""

from __future__ import annotations

import re
from dataclasses import dataclass

from microfold.errors import InputError

OPTIMIZE = ("size", "balanced", "speed")
IO = ("arena", "caller")


@dataclass(frozen=True)
class Options:
    """What the user chooses.

    Attributes:
        optimize: ``size``, ``balanced`` or ``speed``.
        io: inputs and outputs live in the ``arena``, or the ``caller`` hands them in.
        single_file: weights and code in one ``.c``.
        weights_section: linker section of the constants; empty for the default.
    """

    optimize: str = "balanced"
    io: str = "arena"
    single_file: bool = False
    weights_section: str = ""

    def __post_init__(self) -> None:
        for name, value, allowed in (("optimize", self.optimize, OPTIMIZE), ("io", self.io, IO)):
            if value not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}; it is {value!r}")
        if self.weights_section and not re.fullmatch(r"[A-Za-z0-9_.$]+", self.weights_section):
            raise InputError(
                f"a section name has letters, digits, '_', '.' and '$'; it is {self.weights_section!r}"
            )
