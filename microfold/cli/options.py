"""Arguments and options that several commands share."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct
from typer.models import OptionInfo

from microfold.cli.panels import CODE, GOALS, MEMORIES, PORTS, SUITES
from microfold.cli.sizes import parse_size
from microfold.errors import InputError
from microfold.options import ALIGN, BY_ROWS, IO, MEMORY, OPTIMIZE, OWN_LICENSE, WEIGHTS

if TYPE_CHECKING:
    from microfold.options import Options

Model = Annotated[
    Path,
    typer.Argument(
        help="A .tflite file, a C array of one, or a graph in text form (.mf).",
        metavar="MODEL",
        show_default=False,
    ),
]
Models = Annotated[
    list[Path],
    typer.Argument(
        help="A .tflite file, a C array of one, or a graph in text form (.mf). Several models share kernels "
        "and one arena.",
        show_default=False,
        metavar="MODEL",
    ),
]
TfliteModel = Annotated[
    Path,
    typer.Argument(help="A .tflite file, or a C array of one.", metavar="MODEL", show_default=False),
]


def words(*words: str) -> Callable[[str], list[str]]:
    """Return the shell completion of an option with these values."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def _placement(name: str, part: str) -> OptionInfo:
    return typer.Option(
        name,
        metavar="LAYER=SECTION",
        rich_help_panel=MEMORIES,
        help=f"Linker section for the {part} of one layer. Repeatable.",
        show_default=False,
    )


def _targets(incomplete: str) -> list[str]:
    from microfold import target

    return words(*target.available())(incomplete)


TargetName = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="NAME",
        help="Name of a target (see `microfold targets`), or path to a .toml file. [default: depends on the "
        "command]",
        show_default=False,
        autocompletion=_targets,
    ),
]
Optimize = Annotated[
    str,
    typer.Option(
        "--optimize",
        rich_help_panel=GOALS,
        metavar="LEVEL",
        help="speed: fewest cycles; among equally fast builds the smallest. balanced: one percent of the "
        "time is worth three percent of the flash or of the RAM, relative to the minimum possible for the "
        "model. size: as balanced, with a tenth of the price for time.",
        autocompletion=words(*OPTIMIZE),
    ),
]
Flash = Annotated[
    int | None,
    typer.Option(
        "--flash",
        parser=parse_size,
        metavar="SIZE",
        rich_help_panel=GOALS,
        help="Limit for constants and estimated code, in bytes (or K, M). For several models: the sum. Below "
        "the limit, flash has no price.",
        show_default=False,
    ),
]
Ram = Annotated[
    int | None,
    typer.Option(
        "--ram",
        parser=parse_size,
        metavar="SIZE",
        rich_help_panel=GOALS,
        help="Limit for arena plus state, in bytes (or K, M). For several models: the shared arena and all "
        "states. Below the limit, RAM has no price.",
        show_default=False,
    ),
]
Objective = Annotated[
    str,
    typer.Option(
        "--objective",
        metavar="PRICES",
        rich_help_panel=GOALS,
        help="Prices of one percent of the time, the flash and the RAM, instead of the --optimize prices, "
        "e.g. cycles=3,flash=1,ram=1. Percentages are relative to the minimum possible for the model.",
        show_default=False,
    ),
]
External = Annotated[
    list[str] | None,
    typer.Option(
        "--external",
        rich_help_panel=GOALS,
        metavar="NAME",
        help="External code generator, e.g. cmsis-nn. Repeatable; the first one has priority.",
        show_default=False,
    ),
]
Custom = Annotated[
    list[Path] | None,
    typer.Option(
        "--custom",
        metavar="FILE",
        rich_help_panel=PORTS,
        help="Custom operators: a .py file that defines them, or a .toml file of C functions. Repeatable.",
        show_default=False,
    ),
]
Database = Annotated[
    Path | None,
    typer.Option(
        "--database",
        metavar="FILE",
        rich_help_panel=GOALS,
        help="Rank kernels by the measurements of `microfold tune`; unmeasured kernels use estimates.",
        show_default=False,
    ),
]
Board = Annotated[
    str,
    typer.Option(
        "--board",
        metavar="NAME",
        rich_help_panel=GOALS,
        help="Board whose measurements are used, if the database has several.",
        show_default=False,
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        min=0,
        max=64,
        metavar="N",
        rich_help_panel=SUITES,
        help="Number of parallel processes; 0: one per core.",
    ),
]
Scheduler = Annotated[
    str,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        rich_help_panel=SUITES,
        help="Run on the workers of this Dask scheduler, e.g. tcp://10.0.0.1:8786.",
        show_default=False,
    ),
]
Constants = Annotated[bool, typer.Option("--constants", help="Print large constants in full.")]
Html = Annotated[
    bool, typer.Option("--html", rich_help_panel=CODE, help="Also write the HTML page of `microfold report`.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result, and any error, as JSON.")]


class CodeOptions(Struct, frozen=True):
    """Options of the generated code, for every command that generates code."""

    name: Annotated[
        str,
        typer.Option(
            "--name",
            rich_help_panel=CODE,
            metavar="NAME",
            help="Prefix of all C names. [default: name of the model file]",
        ),
    ] = ""
    optimize: Optimize = "balanced"
    flash: Flash = None
    ram: Ram = None
    objective: Objective = ""
    database: Database = None
    board: Board = ""
    io: Annotated[
        str,
        typer.Option(
            "--io",
            rich_help_panel=PORTS,
            metavar="WHERE",
            help="arena: inputs and outputs are in the arena; caller: the caller passes their buffers; rows: "
            "the caller passes the input row by row.",
            autocompletion=words(*IO),
        ),
    ] = "arena"
    rows: Annotated[
        str,
        typer.Option(
            "--rows",
            rich_help_panel=GOALS,
            metavar="WHEN",
            help="auto: stream layers through line buffers within a run if that is profitable; never: "
            "compute whole tensors.",
            autocompletion=words(*BY_ROWS),
        ),
    ] = BY_ROWS[0]
    align: Annotated[
        int,
        typer.Option(
            "--align",
            metavar="N",
            rich_help_panel=MEMORIES,
            help="Alignment of arena, inputs and outputs in bytes, for DMA and caches: 8, 16, 32 or 64. No "
            "two of them share an aligned block.",
            autocompletion=words(*map(str, ALIGN)),
        ),
    ] = ALIGN[0]
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            rich_help_panel=MEMORIES,
            metavar="WHERE",
            help="context: the arena is part of the context; split: the caller passes the arena to each run, "
            "so that models can share it; parts: as split, but with several objects for the memories of the "
            "target. [default: context; for several models: split]",
            autocompletion=words(*MEMORY),
            show_default=False,
        ),
    ] = None
    io_layout: Annotated[
        str,
        typer.Option(
            "--io-layout",
            metavar="LAYOUT",
            rich_help_panel=PORTS,
            help="Layout of image inputs and outputs, e.g. NHWC; model: the layout of the model.",
        ),
    ] = "model"
    sliding: Annotated[
        int | None,
        typer.Option(
            "--sliding",
            min=0,
            metavar="AXIS",
            rich_help_panel=PORTS,
            help="Frame axis of the input: a run reads only new frames, and reuses the results of earlier "
            "ones.",
            show_default=False,
        ),
    ] = None
    sliding_step: Annotated[
        int | None,
        typer.Option(
            "--sliding-step",
            min=1,
            metavar="FRAMES",
            rich_help_panel=PORTS,
            help="New frames per run. [default: the minimum that the strides allow]",
            show_default=False,
        ),
    ] = None
    single_file: Annotated[
        bool,
        typer.Option("--single-file", rich_help_panel=CODE, help="Write weights and code to one .c file."),
    ] = False
    weights_section: Annotated[
        str,
        typer.Option(
            "--weights-section",
            rich_help_panel=MEMORIES,
            metavar="SECTION",
            help="Linker section of all constants.",
        ),
    ] = ""
    weights: Annotated[
        str,
        typer.Option(
            "--weights",
            rich_help_panel=MEMORIES,
            metavar="FORM",
            help="arrays: constants are C arrays; blob: constants are in a binary file, passed to init.",
            autocompletion=words(*WEIGHTS),
        ),
    ] = "arrays"
    place: Annotated[
        list[str] | None,
        _placement("--place", "constants"),
    ] = None
    place_code: Annotated[
        list[str] | None,
        _placement("--place-code", "kernel code"),
    ] = None
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="LAYER=KERNEL",
            rich_help_panel=GOALS,
            help="Compute a layer (its name or number) or an operator only with this kernel; `microfold "
            "kernels` lists them. Repeatable.",
            show_default=False,
        ),
    ] = None
    max_iterations: Annotated[
        int | None,
        typer.Option(
            "--max-iterations",
            min=1,
            metavar="N",
            rich_help_panel=PORTS,
            help="Maximum number of iterations of loops that have no other bound.",
            show_default=False,
        ),
    ] = None
    step: Annotated[
        bool,
        typer.Option(
            "--step",
            rich_help_panel=CODE,
            help="Also generate a function that runs a single layer, e.g. for a scheduler.",
        ),
    ] = False
    taps: Annotated[
        bool,
        typer.Option(
            "--taps",
            rich_help_panel=CODE,
            help="Send the tensors of every layer to a firmware function, for `microfold diff`.",
        ),
    ] = False
    license: Annotated[
        str,
        typer.Option(
            "--license",
            metavar="SPDX",
            rich_help_panel=CODE,
            help="SPDX license expression for the generated files, e.g. MIT. [default: "
            "LicenseRef-microfold-output: the files are yours]",
            show_default=False,
        ),
    ] = OWN_LICENSE
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            rich_help_panel=PORTS,
            help="Class names, one per line. [default: the labels in the model's metadata]",
            show_default=False,
        ),
    ] = None
    custom: Custom = None
    external: External = None
    external_flags: Annotated[
        str,
        typer.Option(
            "--external-flags",
            rich_help_panel=GOALS,
            metavar="FLAGS",
            help="Compiler and linker flags to find the library of --external; used for measuring, verify "
            "and bench.",
        ),
    ] = ""

    def options(self) -> Options:
        """Return the compiler's options.

        Raises:
            InputError: a value is invalid.
        """
        from microfold.options import Options

        return Options(
            optimize=self.optimize,
            flash=self.flash,
            ram=self.ram,
            objective=self.objective,
            io=self.io,
            rows=self.rows,
            align=self.align,
            memory=self.memory or MEMORY[0],
            io_layout=self.io_layout,
            sliding=self.sliding,
            sliding_step=self.sliding_step,
            single_file=self.single_file,
            weights_section=self.weights_section,
            weights=self.weights,
            place=tuple(self.place or ()),
            place_code=tuple(self.place_code or ()),
            kernels=tuple(self.kernel or ()),
            max_iterations=self.max_iterations,
            step=self.step,
            taps=self.taps,
            license=self.license,
            external=tuple(self.external or ()),
            external_flags=tuple(map(_absolute, self._split_flags())),
        )

    def _split_flags(self) -> list[str]:
        try:
            return shlex.split(self.external_flags)
        except ValueError as error:
            raise InputError(
                f"--external-flags must use shell syntax; got {self.external_flags!r}: {error}"
            ) from None


class SuiteOptions(Struct, frozen=True):
    """Options of commands that can process many models, targets and levels."""

    suite: Annotated[
        Path | None,
        typer.Option(
            "--suite",
            metavar="DIR",
            rich_help_panel=SUITES,
            help="Use all models in this folder and its subfolders. --target may then be a comma-separated "
            "list, or all.",
            show_default=False,
        ),
    ] = None
    levels: Annotated[
        str,
        typer.Option(
            "--levels",
            metavar="LEVEL,…",
            rich_help_panel=SUITES,
            help="Comma-separated --optimize levels of a suite. [default: --optimize]",
            show_default=False,
        ),
    ] = ""
    workers: Workers = 0
    scheduler: Scheduler = ""
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="DIR",
            rich_help_panel=SUITES,
            help="Folder that caches the results of a suite by files and options.",
            show_default=False,
        ),
    ] = None

    def check_unused(self) -> None:
        """Raise InputError if options of a suite are given without --suite."""
        options = (("--levels", self.levels), ("--workers", self.workers))
        options = (*options, ("--scheduler", self.scheduler), ("--cache", self.cache))
        given = [name for name, value in options if value]
        if given:
            raise InputError(f"{', '.join(given)} can only be used with --suite DIR")


Signature = Annotated[
    str | None,
    typer.Option(
        "--signature",
        metavar="NAME",
        rich_help_panel=PORTS,
        help="Compile the subgraph of this signature. [default: the first subgraph]",
    ),
]


def _absolute(flag: str) -> str:
    """Return a flag or a path with relative paths made absolute."""
    for prefix in ("-isystem", "-I", "-L"):
        if flag.startswith(prefix):
            return prefix + os.path.abspath(flag.removeprefix(prefix))
    return flag if flag.startswith("-") else os.path.abspath(flag)
