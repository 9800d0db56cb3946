"""Options of commands that run passes."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microfold.cli.options import Signature, words
from microfold.options import NUMERICS
from microfold.support.frozen import frozen

if TYPE_CHECKING:
    from microfold.passes.context import PassContext

Names = list[str] | None

# Options of passes that do not change what is compiled.
WATCHING = frozenset({"print_after", "print_after_all", "dump", "timing", "verify_each"})


@frozen
class PassOptions:
    """What is imported, which passes run, what is seen of them: the options of commands that run passes."""

    input_shape: Annotated[
        Names,
        typer.Option(
            "--input-shape",
            metavar="NAME=SHAPE",
            help="The shape of an input whose dimensions the file leaves open (-1), e.g. x=4,49,10,1; may be "
            "given several times.",
        ),
    ] = None
    signature: Signature = None
    opt_level: Annotated[
        int, typer.Option("--opt-level", min=0, max=4, help="Leave out passes of a higher level.")
    ] = 3
    numerics: Annotated[
        str,
        typer.Option(
            "--numerics",
            help="exact: only what keeps every bit; or relaxed.",
            autocompletion=words(*NUMERICS),
        ),
    ] = "exact"
    disable: Annotated[
        Names,
        typer.Option("--disable-pass", "--disable", metavar="PASS,…", help="Leave these passes out."),
    ] = None
    require: Annotated[
        Names,
        typer.Option("--require-pass", "--require", metavar="PASS,…", help="Run these whatever their level."),
    ] = None
    print_after: Annotated[
        Names,
        typer.Option("--print-ir-after", metavar="PASS,…", help="Print the graph after these passes."),
    ] = None
    print_after_all: Annotated[
        bool, typer.Option("--print-ir-after-all", help="Print the graph after every pass.")
    ] = False
    dump: Annotated[
        Path | None,
        typer.Option("--dump-ir", metavar="DIR", help="Write the graph after each change to numbered files."),
    ] = None
    timing: Annotated[bool, typer.Option("--timing", help="Print the time that each pass took.")] = False
    verify_each: Annotated[
        bool, typer.Option("--verify-each", help="Check the graph after every pass; name one that breaks it.")
    ] = False

    @property
    def unwatched(self) -> PassOptions:
        """The same passes, which nothing watches."""
        defaults: dict[str, Any] = {f.name: f.default for f in fields(self) if f.name in WATCHING}
        return replace(self, **defaults)

    @contextmanager
    def context(self) -> Generator[PassContext]:
        """The context for running passes; what was measured is printed to stderr behind them.

        Raises:
            InputError: a name is that of no pass, or a value is not admitted.
        """
        from microfold.cli.passes_text import check_pass, known_passes
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
        if self.verify_each:  # last: it is the first to see a result
            instruments.append(Verify())
        yield PassContext(
            opt_level=self.opt_level,
            numerics=self.numerics,  # type: ignore[arg-type]  # PassContext checks it
            disabled_pass=disabled,
            required_pass=required,
            instruments=instruments,
        )
        if self.timing:
            print(timing, file=sys.stderr)


def _split(names: Names) -> list[str]:
    """Options may be repeated, and each may give several names."""
    return [name.strip() for text in names or () for name in text.split(",") if name.strip()]
