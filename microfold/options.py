"""Options of a compilation: typed fields, handed along."""

from __future__ import annotations

import re
from dataclasses import dataclass

from microfold.errors import InputError

OPTIMIZE = ("size", "balanced", "speed")
IO = ("arena", "caller")
NUMERICS = ("exact", "relaxed")
# What is generated belongs to whoever generates it, see docs/licence.md.
OWN_LICENSE = "LicenseRef-microfold-output"


@dataclass(frozen=True)
class Options:
    """What the user chooses.

    Attributes:
        optimize: ``size``, ``balanced`` or ``speed``.
        flash: bytes that weights and tables together may take; within them the fastest kernels are used,
            whatever `optimize` says. None: no limit.
        io: inputs and outputs live in the ``arena``, or the ``caller`` hands them in.
        io_layout: the layout in which the caller hands images in and takes them, e.g. ``NHWC``; ``model`` for
            that of the model.
        single_file: weights and code in one ``.c``.
        weights_section: linker section of the constants; empty for the default.
        step: also a function that runs one layer, of which the run function is a loop.
        license: SPDX expression that every generated file carries.
        numerics: ``exact`` admits only rewrites whose outputs are the same bits; ``relaxed`` also others, and
            reports what they change.
        external: names of external code generators to use, the preferred ones first.
        external_flags: arguments for compiler and linker that find the libraries which these call, where the
            code is compiled here: to measure, verify or simulate it.
    """

    optimize: str = "balanced"
    flash: int | None = None
    io: str = "arena"
    io_layout: str = "model"
    single_file: bool = False
    weights_section: str = ""
    step: bool = False
    license: str = OWN_LICENSE
    numerics: str = "exact"
    external: tuple[str, ...] = ()
    external_flags: tuple[str, ...] = ()

    @property
    def compiler_flag(self) -> str:
        """The optimisation level that the generated code is made for, and measured with."""
        return "-Os" if self.optimize == "size" else "-O2"

    @property
    def external_compile_flags(self) -> tuple[str, ...]:
        """Those of `external_flags` that are for the compiler; the others are for the linker only."""
        return tuple(f for f in self.external_flags if f[:1] == "-" and f[:2] not in ("-l", "-L", "-W"))

    def __post_init__(self) -> None:
        choices = (
            ("optimize", self.optimize, OPTIMIZE),
            ("io", self.io, IO),
            ("numerics", self.numerics, NUMERICS),
        )
        for name, value, allowed in choices:
            if value not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}; it is {value!r}")
        if self.io_layout != "model" and sorted(self.io_layout) != sorted("NHWC"):
            raise InputError(
                f"io_layout must be model, or the axes N, H, W and C in some order; it is {self.io_layout!r}"
            )
        if self.flash is not None and self.flash < 0:
            raise InputError(f"flash must not be negative; it is {self.flash}")
        for flag in self.external_flags:
            if not flag.isprintable():
                raise InputError(f"external_flags must be printable; one is {flag!r}")
        if not re.fullmatch(r"[A-Za-z0-9.+:()-]+( [A-Za-z0-9.+:()-]+)*", self.license):
            raise InputError(
                f"a license is an SPDX expression such as MIT or LicenseRef-Own; it is {self.license!r}"
            )
        if self.weights_section and not re.fullmatch(r"[A-Za-z0-9_.$]+", self.weights_section):
            raise InputError(
                f"a section name has letters, digits, '_', '.' and '$'; it is {self.weights_section!r}"
            )
