"""Options of commands that run passes."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct
from msgspec.structs import replace

from microfold.cli.options import Signature, words
from microfold.cli.panels import GOALS, PASSES, PORTS
from microfold.options import IO_TYPES, NUMERICS

if TYPE_CHECKING:
    from microfold.options import Options
    from microfold.passes.context import PassContext

Names = list[str] | None

InputType = Annotated[
    Names,
    typer.Option(
        "--input-type",
        metavar="[NAME=]TYPE",
        rich_help_panel=PORTS,
        help="Element type of one input, or of all: float32, int8, uint8 or int16. Repeatable. [default: the "
        "model's]",
        autocompletion=words(*IO_TYPES),
    ),
]
OutputType = Annotated[
    Names,
    typer.Option(
        "--output-type",
        metavar="[NAME=]TYPE",
        rich_help_panel=PORTS,
        help="Element type of one output, or of all, as --input-type. Repeatable. [default: the model's]",
        autocompletion=words(*IO_TYPES),
    ),
]

# Options that only observe the passes: the compiled code does not depend on them.
WATCHING = frozenset({"print_after", "print_after_all", "dump", "timing", "verify_each"})


class PassOptions(Struct, frozen=True):
    """Options of import, passes and their instruments, for every command that runs passes."""

    input_shape: Annotated[
        Names,
        typer.Option(
            "--input-shape",
            metavar="NAME=SHAPE",
            rich_help_panel=PORTS,
            help="Shape of an input with open dimensions (-1), e.g. x=4,49,10,1. Repeatable.",
        ),
    ] = None
    input_type: InputType = None
    output_type: OutputType = None
    signature: Signature = None
    opt_level: Annotated[
        int,
        typer.Option(
            "--opt-level",
            min=0,
            max=4,
            rich_help_panel=PASSES,
            metavar="LEVEL",
            help="Skip passes above this level.",
        ),
    ] = 3
    numerics: Annotated[
        str,
        typer.Option(
            "--numerics",
            rich_help_panel=GOALS,
            metavar="KIND",
            help="exact: bit-exact rewrites only; relaxed: also rewrites that may change low bits.",
            autocompletion=words(*NUMERICS),
        ),
    ] = "exact"
    disable: Annotated[
        Names,
        typer.Option(
            "--disable-pass",
            "--disable",
            metavar="PASS,…",
            rich_help_panel=PASSES,
            help="Skip these passes. Repeatable.",
        ),
    ] = None
    require: Annotated[
        Names,
        typer.Option(
            "--require-pass",
            "--require",
            metavar="PASS,…",
            rich_help_panel=PASSES,
            help="Run these passes regardless of --opt-level. Repeatable.",
        ),
    ] = None
    before: Annotated[
        Names,
        typer.Option(
            "--pass-before",
            metavar="NAME=PASS,…",
            rich_help_panel=PASSES,
            help="Also run these passes before this section or pass of the pipeline; --custom files may "
            "define them. Repeatable.",
        ),
    ] = None
    after: Annotated[
        Names,
        typer.Option(
            "--pass-after",
            metavar="NAME=PASS,…",
            rich_help_panel=PASSES,
            help="Also run these passes after this section or pass. Repeatable.",
        ),
    ] = None
    print_after: Annotated[
        Names,
        typer.Option(
            "--print-ir-after",
            metavar="PASS,…",
            rich_help_panel=PASSES,
            help="Print the graph after these passes.",
        ),
    ] = None
    print_after_all: Annotated[
        bool,
        typer.Option(
            "--print-ir-after-all", rich_help_panel=PASSES, help="Print the graph after every pass."
        ),
    ] = False
    dump: Annotated[
        Path | None,
        typer.Option(
            "--dump-ir",
            metavar="DIR",
            rich_help_panel=PASSES,
            help="Write the graph to a numbered file after each change.",
        ),
    ] = None
    timing: Annotated[
        bool, typer.Option("--timing", rich_help_panel=PASSES, help="Print the run time of each pass.")
    ] = False
    verify_each: Annotated[
        bool,
        typer.Option(
            "--verify-each",
            rich_help_panel=PASSES,
            help="Verify the graph after every pass, and report the pass that breaks it.",
        ),
    ] = False

    @property
    def unwatched(self) -> PassOptions:
        """Options of the same passes without instruments."""
        defaults = dict(zip(self.__struct_fields__, self.__struct_defaults__, strict=True))
        return replace(self, **{name: defaults[name] for name in WATCHING})

    def added_to(self, options: Options) -> Options:
        """Return the compiler's options with the numerics and the types of inputs and outputs."""
        types = {"input_type": tuple(self.input_type or ()), "output_type": tuple(self.output_type or ())}
        return replace(options, numerics=self.numerics, **types)

    @contextmanager
    def context(self) -> Generator[PassContext]:
        """Yield the context for running passes; with --timing, print the times to stderr afterwards.

        Raises:
            InputError: a pass is unknown, or a value is invalid.
        """
        from microfold.cli.passes_text import check_pass, edited_pipeline, known_passes
        from microfold.passes.context import Instrument, PassContext
        from microfold.passes.instruments import DumpIR, PrintIR, Timing, Verify

        disabled, required, printed = map(_split, (self.disable, self.require, self.print_after))
        given = [*disabled, *required, *printed]
        known = known_passes() if given else ()
        for name in given:
            check_pass(name, known)
        instruments: list[Instrument] = []
        if printed or self.print_after_all:
            instruments.append(PrintIR(None if self.print_after_all else printed))
        if self.dump is not None:
            instruments.append(DumpIR(self.dump))
        timing = Timing()
        if self.timing:
            instruments.append(timing)
        if self.verify_each:  # the last instrument sees each result first
            instruments.append(Verify())
        yield PassContext(
            opt_level=self.opt_level,
            numerics=self.numerics,  # type: ignore[arg-type]  # PassContext checks it
            disabled_pass=disabled,
            required_pass=required,
            instruments=instruments,
            pipeline=edited_pipeline(self.before or (), self.after or ()),
        )
        if self.timing:
            print(timing, file=sys.stderr)


def _split(names: Names) -> list[str]:
    """Return the names of a repeatable option, whose values may each list several names."""
    return [name.strip() for text in names or () for name in text.split(",") if name.strip()]
