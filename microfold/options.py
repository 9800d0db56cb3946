"""Options of a compilation, as typed fields that are checked when they are set."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from msgspec import Struct

from microfold.errors import InputError

OPTIMIZE = ("size", "balanced", "speed")
# Memory of inputs and outputs if they are passed as whole tensors.
WHOLE_IO = ("arena", "caller")
IO = (*WHOLE_IO, "rows")
# Whether layers may be streamed.
BY_ROWS = ("auto", "never")
WEIGHTS = ("arrays", "blob")
MEMORY = ("context", "split", "parts")
# Bytes: from the alignment of the widest elements to the length of the longest cache lines.
ALIGN = (8, 16, 32, 64)
NUMERICS = ("exact", "relaxed")
# Element types that inputs and outputs can be given.
IO_TYPES = ("float32", "int8", "uint8", "int16")
# Figures that an objective can price.
PRICED = ("cycles", "flash", "ram")
MAX_ITERATIONS = (1 << 31) - 1
# The generated files belong to the user, see docs/licence.md.
OWN_LICENSE = "LicenseRef-microfold-output"


class Options(Struct, frozen=True):
    """Options of a compilation.

    Attributes:
        optimize: optimisation level. ``speed``: fewest cycles, then smallest size. ``balanced``: one percent
            of the time is worth three percent of the flash, or three percent of the RAM, where 100 % is the
            minimum for the model. ``size``: a tenth of that price for time.
        flash: limit for constants and estimated code, in bytes; None: no limit. Below a limit, flash has no
            price.
        ram: limit for arena and state, in bytes; None: no limit. Below a limit, RAM has no price.
        objective: prices of one percent of time, flash and RAM that replace the prices of `optimize`, e.g.
            ``cycles=3,flash=1,ram=1``. A figure that is not named has no price.
        io: ``arena``: inputs and outputs are in the arena. ``caller``: the caller passes their buffers.
            ``rows``: the caller passes the input row by row, and the first layers are streamed.
        rows: ``auto``: layers are streamed through line buffers if that is profitable. ``never``: all layers
            compute whole tensors.
        align: alignment of the arena, of its contents and of the caller's buffers, in bytes: the length of a
            cache line, or a requirement of DMA. Tensors that are alive together share no aligned block.
        memory: ``context``: the arena is part of the context. ``split``: the caller passes the arena to each
            run, so that models can share it. ``parts``: as ``split``, but in several objects, for the
            memories of the target.
        io_layout: layout of image inputs and outputs, e.g. ``NHWC``; ``model``: the layout of the model.
        input_type, output_type: element types of inputs and outputs, each ``TYPE`` for all real values or
            ``NAME=TYPE`` for one. Default: the types of the model.
        sliding: frame axis of the input: a run takes only new frames and reuses the results of earlier ones.
            None: a run takes the whole input.
        sliding_step: new frames per run; None: the minimum that the network's strides allow.
        single_file: whether weights and code are in one ``.c`` file.
        weights_section: linker section of the constants; empty: the default section.
        weights: ``arrays``: constants are C arrays. ``blob``: they are in a binary file, passed to init.
        place: ``LAYER=SECTION``: the linker section of a layer's constants.
        place_code: ``LAYER=SECTION``: the linker section of a layer's kernel, which is then not inlined into
            the run function.
        kernels: ``LAYER=KERNEL`` or ``OPERATOR=KERNEL``: the only kernels that may compute a layer, or the
            layers of an operator that they support. Selection chooses among several entries for one layer.
        max_iterations: maximum number of iterations of loops without any other bound; None: a loop without a
            bound is an error.
        step: whether to generate a function that runs one layer. The run function is then a loop over it.
        taps: whether each run passes its tensors to a function of the firmware (tensor trace), see
            `codegen.tensor_trace`.
        license: SPDX license expression of every generated file.
        numerics: ``exact``: only rewrites that keep all outputs bit for bit. ``relaxed``: also others; the
            report lists their effects.
        external: names of external code generators to use, in order of preference.
        external_flags: compiler and linker flags that find the libraries of these generators. They are used
            to compile the code on this machine, to measure, verify or simulate it.
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
    input_type: tuple[str, ...] = ()
    output_type: tuple[str, ...] = ()
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
        """Compiler flag for which the code is generated, and with which it is measured."""
        return "-Os" if self.optimize == "size" else "-O2"

    @property
    def unroll(self) -> int:
        """Maximum number of nodes of an unrolled loop, summed over all iterations."""
        return 4096 if self.optimize == "speed" else 1024

    @property
    def split(self) -> bool:
        """Whether the arena is separate from the context."""
        return self.memory != "context"

    @property
    def in_parts(self) -> bool:
        """Whether the arena consists of several objects."""
        return self.memory == "parts"

    @property
    def external_compile_flags(self) -> tuple[str, ...]:
        """The flags of `external_flags` that the compiler needs; the others are for the linker only."""
        return tuple(f for f in self.external_flags if f[:1] == "-" and f[:2] not in ("-l", "-L", "-W"))

    @property
    def streaming_blocker(self) -> str:
        """Reason why layers must compute whole tensors; empty if they may be streamed."""
        return self._asks_for_whole[1]

    @property
    def _asks_for_whole(self) -> tuple[str, str]:
        """The option that forbids streaming, and the reason; both empty if no option does."""
        if self.step:
            why = "a streamed layer runs many times, interleaved with others, so it cannot be one step"
            return "step", why
        if self.taps:
            return "taps", "the whole results of layers, which taps copy, are never in memory"
        if self.in_parts:
            return "memory=parts", "line buffers require a single arena, not several parts"
        return ("rows=never", "rows=never requires whole tensors") if self.rows == "never" else ("", "")

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
                raise InputError(f"{name} must be one of {', '.join(map(str, allowed))}; got {value!r}")
        if self.io_layout != "model" and sorted(self.io_layout) != sorted("NHWC"):
            raise InputError(
                f"io_layout must be model, or the axes N, H, W and C in some order; got {self.io_layout!r}"
            )
        for name, types in (("input_type", self.input_type), ("output_type", self.output_type)):
            if isinstance(types, str):
                raise InputError(f"{name} must be a list of TYPE or NAME=TYPE; put {types!r} in a list")
            io_types(types)
        for name, size in (("flash", self.flash), ("ram", self.ram)):
            if size is not None and size < 0:
                raise InputError(f"{name} must not be negative; got {size}")
        if self.objective:
            parse_prices(self.objective)
        if self.max_iterations is not None and not 1 <= self.max_iterations <= MAX_ITERATIONS:
            raise InputError(f"max_iterations must be in [1, {MAX_ITERATIONS}]; got {self.max_iterations}")
        for flag in self.external_flags:
            if not flag.isprintable():
                raise InputError(f"external_flags must be printable; got {flag!r}")
        if not re.fullmatch(r"[A-Za-z0-9.+:()-]+( [A-Za-z0-9.+:()-]+)*", self.license):
            raise InputError(
                f"license must be an SPDX expression, e.g. MIT or LicenseRef-Own; got {self.license!r}"
            )
        if isinstance(self.kernels, str):
            raise InputError(f"kernels must be a list of LAYER=KERNEL; put {self.kernels!r} in a list")
        for pin in self.kernels:
            check_pin(pin)
        if self.weights == "blob" and (self.single_file or self.weights_section or self.place):
            raise InputError(
                "weights=blob cannot be combined with single_file, weights_section or place: the firmware "
                "places the blob; remove the options on one side"
            )
        if self.sliding_step is not None and self.sliding is None:
            raise InputError(
                "sliding_step is the number of frames per run along an axis; set the axis with sliding"
            )
        if self.io == "rows" and self.sliding is not None:
            raise InputError(
                "io=rows cannot be combined with sliding: a run then takes only a few frames; "
                "remove one of the two options"
            )
        if self.io == "rows" and self.streaming_blocker:
            given, why = self._asks_for_whole
            raise InputError(f"io=rows cannot be combined with {given}: {why}; remove one of the two options")
        if self.weights_section:
            _check_section(self.weights_section)
        for name, given in (("place", self.place), ("place_code", self.place_code)):
            layers = [layer for layer, _ in map(_placement, given)]
            if twice := sorted({layer for layer in layers if layers.count(layer) > 1}):
                raise InputError(
                    f"{name} must name one section per layer; it names several for {', '.join(twice)}"
                )

    @property
    def data_sections(self) -> dict[str, str]:
        """Linker sections of the layers' constants, by layer name."""
        return dict(map(_placement, self.place))

    @property
    def code_sections(self) -> dict[str, str]:
        """Linker sections of the layers' kernels, by layer name."""
        return dict(map(_placement, self.place_code))


def _placement(text: str) -> tuple[str, str]:
    layer, equals, section = text.partition("=")
    if not (layer and equals):
        raise InputError(f"a placement must have the form LAYER=SECTION, e.g. conv1=.qspi; got {text!r}")
    _check_section(section)
    return layer, section


def parse_prices(text: str) -> dict[str, float]:
    """Return the prices in an objective, by figure.

    Raises:
        InputError: the text is not a valid objective.
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
                f"an objective must have at most one finite price >= 0 for each of {', '.join(PRICED)}, e.g. "
                f"cycles=3,flash=1,ram=1; in {text!r}, {part!r} is wrong"
            )
        found[name] = price
    if not any(found.values()):
        raise InputError(f"an objective must have a price above zero; {text!r} has none")
    return found


def io_types(texts: Sequence[str]) -> dict[str, str]:
    """Return the element types that ``TYPE`` and ``NAME=TYPE`` request, by name; "" stands for all.

    Raises:
        InputError: a type is unknown, or a name has several types.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, kind = text.rpartition("=")
        if kind not in IO_TYPES or (equals and not name):
            raise InputError(
                f"the type of an input or output must be TYPE or NAME=TYPE with one of "
                f"{', '.join(IO_TYPES)}; got {text!r}"
            )
        if name in found:
            which = repr(name) if name else "all inputs or outputs"
            raise InputError(f"{which} must have one type; got {found[name]} and {kind}: remove one of them")
        found[name] = kind
    return found


def check_pin(text: str) -> tuple[str, str]:
    """Return the two sides of a pinned kernel: a layer or an operator, and the kernel's name.

    Raises:
        InputError: the text does not have two sides.
    """
    where, equals, kernel = text.partition("=")
    if not (where and equals and kernel):
        raise InputError(f"a pinned kernel must have the form LAYER=KERNEL or OPERATOR=KERNEL; got {text!r}")
    return where, kernel


def _check_section(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.$]+", name):
        raise InputError(f"a section name may have letters, digits, '_', '.' and '$' only; got {name!r}")
