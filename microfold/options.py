"""Options of a compilation: typed fields, handed along."""

from __future__ import annotations

import math
import re

from microfold.errors import InputError
from microfold.support.frozen import frozen

OPTIMIZE = ("size", "balanced", "speed")
# How whole inputs and outputs are handed over.
WHOLE_IO = ("arena", "caller")
IO = (*WHOLE_IO, "rows")
# Whether layers may be computed row by row.
BY_ROWS = ("auto", "never")
WEIGHTS = ("arrays", "blob")
MEMORY = ("context", "split", "parts")
# Bytes: from what the widest elements need to the longest cache lines.
ALIGN = (8, 16, 32, 64)
NUMERICS = ("exact", "relaxed")
# The figures to which an objective gives prices.
PRICED = ("cycles", "flash", "ram")
MAX_ITERATIONS = (1 << 31) - 1
# What is generated belongs to whoever generates it, see docs/licence.md.
OWN_LICENSE = "LicenseRef-microfold-output"


@frozen
class Options:
    """What the user chooses.

    Attributes:
        optimize: the level. ``speed``: the fastest there is; of equally fast ones the smallest.
            ``balanced``: one percent of the time is worth three percent of the flash, or three percent of the
            RAM; a hundred percent are the least possible for the model. ``size``: a tenth of that price for
            time.
        flash: bytes that constants and code may take, the code by estimate. Below the limit, flash has no
            price. None: no limit.
        ram: bytes that arena and state may take. Below the limit, RAM has no price. None: no limit.
        objective: prices of one percent of the time, the flash and the RAM, e.g. ``cycles=3,flash=1,ram=1``,
            in the place of those of `optimize`. Anything that is not named has no price.
        io: inputs and outputs live in the ``arena``, or the ``caller`` hands them in; with ``rows``, the
            input is handed in row by row, and the first layers compute rows as they come.
        rows: ``auto``: within a run, layers are computed row by row where that pays; ``never``: all compute
            whole tensors.
        align: bytes at whose multiples the arena starts, and all that lies in it or is handed in: of a cache
            line, or what DMA asks for. What lives at the same time shares no such line.
        memory: the arena is part of the ``context``; or, ``split``, the caller hands it in with each run, so
            that models can share one; or, ``parts``, it is that and several objects, for memories of the
            target.
        io_layout: the layout in which the caller hands images in and takes them, e.g. ``NHWC``; ``model`` for
            that of the model.
        sliding: the axis of the input along which frames come: a run takes new ones only, and what the
            network computed of the others is kept. None: a run takes the whole input.
        sliding_step: frames that such a run takes; None: the fewest that the network's strides allow.
        single_file: weights and code in one ``.c``.
        weights_section: linker section of the constants; empty for the default.
        weights: constants are C ``arrays``, or in a binary file, a ``blob``, which the caller hands in.
        place: ``LAYER=SECTION``: the linker section of a layer's constants.
        place_code: likewise of its kernel, which then is not made part of the run function.
        kernels: ``LAYER=KERNEL`` or ``OPERATOR=KERNEL``: the only kernels that may compute a layer, or the
            layers of an operator that they can compute; several for one leave the choice among them.
        max_iterations: how often loops may run that nothing else bounds; None: such a loop is an error.
        step: also a function that runs one layer, of which the run function is a loop.
        taps: each run hands its tensors to a function of the firmware, see `codegen.taps`.
        license: SPDX expression that every generated file carries.
        numerics: ``exact`` admits only rewrites whose outputs are the same bits; ``relaxed`` also others, and
            reports what they change.
        external: names of external code generators to use, the preferred ones first.
        external_flags: arguments for compiler and linker that find the libraries which these call, where the
            code is compiled here: to measure, verify or simulate it.
    """

    optimize: str = "balanced"
    flash: int | None = None
    ram: int | None = None
    objective: str = ""
    io: str = "arena"
    rows: str = BY_ROWS[0]
    align: int = ALIGN[0]
    memory: str = MEMORY[0]
    io_layout: str = "model"
    sliding: int | None = None
    sliding_step: int | None = None
    single_file: bool = False
    weights_section: str = ""
    weights: str = "arrays"
    place: tuple[str, ...] = ()
    place_code: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    max_iterations: int | None = None
    step: bool = False
    taps: bool = False
    license: str = OWN_LICENSE
    numerics: str = "exact"
    external: tuple[str, ...] = ()
    external_flags: tuple[str, ...] = ()

    @property
    def compiler_flag(self) -> str:
        """The optimisation level that the generated code is made for, and measured with."""
        return "-Os" if self.optimize == "size" else "-O2"

    @property
    def unroll(self) -> int:
        """Nodes that all runs of a loop together may have where it is written out."""
        return 4096 if self.optimize == "speed" else 1024

    @property
    def split(self) -> bool:
        """Whether the arena is apart from the context."""
        return self.memory != "context"

    @property
    def in_parts(self) -> bool:
        """Whether it is several objects."""
        return self.memory == "parts"

    @property
    def external_compile_flags(self) -> tuple[str, ...]:
        """Those of `external_flags` that are for the compiler; the others are for the linker only."""
        return tuple(f for f in self.external_flags if f[:1] == "-" and f[:2] not in ("-l", "-L", "-W"))

    @property
    def why_whole(self) -> str:
        """Why layers must compute whole tensors; empty if they need not."""
        return self._asks_for_whole[1]

    @property
    def _asks_for_whole(self) -> tuple[str, str]:
        """The option with which layers must compute whole tensors, and why; empty if there is none."""
        if self.step:
            why = "a layer runs again and again between others, so that there is no moment for its step"
            return "step", why
        if self.taps:
            return "taps", "the whole results of layers, which taps copy, are never there"
        if self.in_parts:
            return "memory=parts", "windows of rows lie in one arena, not in parts of it"
        return ("rows=never", "rows=never asks for whole tensors") if self.rows == "never" else ("", "")

    def __post_init__(self) -> None:
        choices = (
            ("optimize", self.optimize, OPTIMIZE),
            ("io", self.io, IO),
            ("rows", self.rows, BY_ROWS),
            ("weights", self.weights, WEIGHTS),
            ("memory", self.memory, MEMORY),
            ("numerics", self.numerics, NUMERICS),
            ("align", self.align, ALIGN),
        )
        for name, value, allowed in choices:
            if value not in allowed:
                raise InputError(f"{name} must be one of {', '.join(map(str, allowed))}; it is {value!r}")
        if self.io_layout != "model" and sorted(self.io_layout) != sorted("NHWC"):
            raise InputError(
                f"io_layout must be model, or the axes N, H, W and C in some order; it is {self.io_layout!r}"
            )
        for name, size in (("flash", self.flash), ("ram", self.ram)):
            if size is not None and size < 0:
                raise InputError(f"{name} must not be negative; it is {size}")
        if self.objective:
            parse_prices(self.objective)
        if self.max_iterations is not None and not 1 <= self.max_iterations <= MAX_ITERATIONS:
            raise InputError(f"max_iterations must be in [1, {MAX_ITERATIONS}]; it is {self.max_iterations}")
        for flag in self.external_flags:
            if not flag.isprintable():
                raise InputError(f"external_flags must be printable; one is {flag!r}")
        if not re.fullmatch(r"[A-Za-z0-9.+:()-]+( [A-Za-z0-9.+:()-]+)*", self.license):
            raise InputError(
                f"a license is an SPDX expression such as MIT or LicenseRef-Own; it is {self.license!r}"
            )
        if isinstance(self.kernels, str):
            raise InputError(f"kernels are given as a list of LAYER=KERNEL; wrap {self.kernels!r} in a list")
        for pin in self.kernels:
            check_pin(pin)
        if self.weights == "blob" and (self.single_file or self.weights_section or self.place):
            raise InputError(
                "weights in a blob are placed by the firmware: "
                "leave single_file, weights_section and place away, or leave weights away"
            )
        if self.sliding_step is not None and self.sliding is None:
            raise InputError(
                "sliding_step is how many frames a run takes along an axis; give sliding with it"
            )
        if self.io == "rows" and self.sliding is not None:
            raise InputError(
                "with sliding, a run takes a few frames only, and there is nothing to hand in row by row: "
                "leave io away, or sliding"
            )
        if self.io == "rows" and self.why_whole:
            given, why = self._asks_for_whole
            raise InputError(f"with io=rows, {why}: leave {given} away, or io")
        if self.weights_section:
            _check_section(self.weights_section)
        for name, given in (("place", self.place), ("place_code", self.place_code)):
            layers = [layer for layer, _ in map(_placement, given)]
            if twice := sorted({layer for layer in layers if layers.count(layer) > 1}):
                raise InputError(f"{name} must give a layer one section; it gives {', '.join(twice)} several")

    @property
    def data_sections(self) -> dict[str, str]:
        """Sections of layers' constants by the layers' names."""
        return dict(map(_placement, self.place))

    @property
    def code_sections(self) -> dict[str, str]:
        """Sections of layers' kernels by the layers' names."""
        return dict(map(_placement, self.place_code))


def _placement(text: str) -> tuple[str, str]:
    layer, equals, section = text.partition("=")
    if not (layer and equals):
        raise InputError(f"a placement is LAYER=SECTION, e.g. conv1=.qspi; it is {text!r}")
    _check_section(section)
    return layer, section


def parse_prices(text: str) -> dict[str, float]:
    """Return the prices that an objective names.

    Raises:
        InputError: it is none.
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            price = float(number)
        except ValueError:
            price = math.nan
        if name not in PRICED or name in found or not 0 <= price < math.inf:
            raise InputError(
                f"an objective gives {', '.join(PRICED)} one finite price each that is not negative, e.g. "
                f"cycles=3,flash=1,ram=1; in {text!r}, {part!r} does not"
            )
        found[name] = price
    if not any(found.values()):
        raise InputError(f"an objective must have a price above zero; {text!r} has none")
    return found


def check_pin(text: str) -> tuple[str, str]:
    """Return the two sides of a pinned kernel: a layer or an operator, and the kernel's name.

    Raises:
        InputError: it has not two of them.
    """
    where, equals, kernel = text.partition("=")
    if not (where and equals and kernel):
        raise InputError(f"a pinned kernel is LAYER=KERNEL or OPERATOR=KERNEL; it is {text!r}")
    return where, kernel


def _check_section(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.$]+", name):
        raise InputError(f"a section name has letters, digits, '_', '.' and '$'; it is {name!r}")
