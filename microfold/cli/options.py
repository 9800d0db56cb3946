"""Arguments and options of several commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.models import OptionInfo

from microfold.cli.sizes import parse_size
from microfold.errors import InputError
from microfold.options import ALIGN, BY_ROWS, IO, MEMORY, OPTIMIZE, OWN_LICENSE, WEIGHTS
from microfold.support.frozen import frozen

if TYPE_CHECKING:
    from microfold.options import Options

Model = Annotated[
    Path, typer.Argument(help="The model: a .tflite file, or its text form (.mf).", show_default=False)
]
Models = Annotated[
    list[Path],
    typer.Argument(
        help="The model: a .tflite file, or its text form (.mf). Several ones share kernels and an arena.",
        show_default=False,
        metavar="MODEL...",
    ),
]
TfliteModel = Annotated[Path, typer.Argument(help="The model: a .tflite file.", show_default=False)]


def words(*words: str) -> Callable[[str], list[str]]:
    """What a shell offers for an option of these values."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def _placement(name: str, part: str) -> OptionInfo:
    return typer.Option(
        name,
        metavar="LAYER=SECTION",
        help=f"Linker section of a layer's {part}; may be given several times.",
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
        help="A target's name, or a path to your own .toml; default: the command says which.",
        show_default=False,
        autocompletion=_targets,
    ),
]
Optimize = Annotated[
    str,
    typer.Option(
        "--optimize",
        help="speed: the fastest there is; of equally fast ones the smallest. balanced: one percent of the "
        "time is worth three percent of the flash, or three percent of the RAM; percents are of the least "
        "possible for the model. size: a tenth of that price for time.",
        autocompletion=words(*OPTIMIZE),
    ),
]
Flash = Annotated[
    int | None,
    typer.Option(
        "--flash",
        parser=parse_size,
        metavar="SIZE",
        help="Bytes (or K, M) that constants and code may take, the code by estimate; of several models "
        "those of all together. Below the limit, flash has no price.",
        show_default=False,
    ),
]
Ram = Annotated[
    int | None,
    typer.Option(
        "--ram",
        parser=parse_size,
        metavar="SIZE",
        help="Bytes (or K, M) that arena and state may take; of several models the shared arena and all "
        "states. Below the limit, RAM has no price.",
        show_default=False,
    ),
]
Objective = Annotated[
    str,
    typer.Option(
        "--objective",
        metavar="PRICES",
        help="Prices of one percent of the time, the flash and the RAM in the place of those of --optimize, "
        "e.g. cycles=3,flash=1,ram=1. Percents are of the least possible for the model.",
        show_default=False,
    ),
]
External = Annotated[
    list[str] | None,
    typer.Option(
        "--external",
        help="An external code generator to use, e.g. cmsis-nn; may be given several times.",
        show_default=False,
    ),
]
Custom = Annotated[
    list[Path] | None,
    typer.Option(
        "--custom",
        metavar="FILE",
        help="Custom operators of yours: a .py file that defines them, or a .toml file of C functions.",
        show_default=False,
    ),
]
Database = Annotated[
    Path | None,
    typer.Option(
        "--database",
        metavar="FILE",
        help="Choose kernels by what `microfold tune` has measured, as far as it has.",
        show_default=False,
    ),
]
Board = Annotated[
    str,
    typer.Option(
        "--board",
        metavar="NAME",
        help="Of the database: what was measured on this board, if it has several.",
        show_default=False,
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers", min=0, max=64, metavar="N", help="Processes at once; 0: as many as there are cores."
    ),
]
Scheduler = Annotated[
    str,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Let the workers of this Dask scheduler do it, e.g. tcp://10.0.0.1:8786.",
        show_default=False,
    ),
]
Constants = Annotated[bool, typer.Option("--constants", help="Print large constants in full.")]
Html = Annotated[
    bool, typer.Option("--html", help="Also the report as a page, as `microfold report` makes it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@frozen
class CodeOptions:
    """What the generated code is like: the options of every command that makes some."""

    name: Annotated[str, typer.Option("--name", help="Prefix of all C names; default: the file's name.")] = ""
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
            help="Inputs and outputs live in the arena, or the caller hands them in; with rows, the input is "
            "handed in row by row.",
            autocompletion=words(*IO),
        ),
    ] = "arena"
    rows: Annotated[
        str,
        typer.Option(
            "--rows",
            help="auto: within a run, layers are computed row by row where that pays; never: all compute "
            "whole tensors.",
            autocompletion=words(*BY_ROWS),
        ),
    ] = BY_ROWS[0]
    align: Annotated[
        int,
        typer.Option(
            "--align",
            metavar="N",
            help="For DMA and caches: arena, inputs and outputs start at multiples of N bytes, 8 to 64, and "
            "share no such line.",
            autocompletion=words(*map(str, ALIGN)),
        ),
    ] = ALIGN[0]
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            help="The arena is part of the context; or split: it is handed in with each run, so that models "
            "can share one; or parts: also in several objects, for memories of the target. Default: context; "
            "of several models split.",
            autocompletion=words(*MEMORY),
            show_default=False,
        ),
    ] = None
    io_layout: Annotated[
        str,
        typer.Option(
            "--io-layout",
            metavar="LAYOUT",
            help="The layout in which images are handed in and out, e.g. NHWC; model: as the model has them.",
        ),
    ] = "model"
    sliding: Annotated[
        int | None,
        typer.Option(
            "--sliding",
            min=0,
            metavar="AXIS",
            help="The axis of the input along which frames come: a run takes new ones only, and keeps what "
            "it computed of the others.",
            show_default=False,
        ),
    ] = None
    sliding_step: Annotated[
        int | None,
        typer.Option(
            "--sliding-step",
            min=1,
            metavar="FRAMES",
            help="How many frames such a run takes; default: the fewest that the network's strides allow.",
            show_default=False,
        ),
    ] = None
    single_file: Annotated[bool, typer.Option("--single-file", help="Weights and code in one .c file.")] = (
        False
    )
    weights_section: Annotated[
        str, typer.Option("--weights-section", help="Linker section of the weights.")
    ] = ""
    weights: Annotated[
        str,
        typer.Option(
            "--weights",
            help="arrays: constants are in the C; blob: in a binary file that init is handed.",
            autocompletion=words(*WEIGHTS),
        ),
    ] = "arrays"
    place: Annotated[
        list[str] | None,
        _placement("--place", "constants"),
    ] = None
    place_code: Annotated[
        list[str] | None,
        _placement("--place-code", "kernel"),
    ] = None
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="LAYER=KERNEL",
            help="Compute a layer (its name or number), or an operator, by this kernel only; may be given "
            "several times. `microfold kernels` lists them.",
            show_default=False,
        ),
    ] = None
    max_iterations: Annotated[
        int | None,
        typer.Option(
            "--max-iterations",
            min=1,
            metavar="N",
            help="How often loops may run whose number of runs nothing else bounds.",
            show_default=False,
        ),
    ] = None
    step: Annotated[
        bool, typer.Option("--step", help="Also a function that runs one layer, e.g. for a scheduler.")
    ] = False
    taps: Annotated[
        bool, typer.Option("--taps", help="Every run writes its tensors to the firmware, for diff.")
    ] = False
    license: Annotated[
        str,
        typer.Option(
            "--license",
            metavar="SPDX",
            help="What the generated files carry as their license, e.g. MIT; default: they are yours.",
            show_default=False,
        ),
    ] = OWN_LICENSE
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="Names of the classes, one on a line; default: those in the model's metadata.",
            show_default=False,
        ),
    ] = None
    custom: Custom = None
    external: External = None
    external_flags: Annotated[
        str,
        typer.Option(
            "--external-flags",
            help="Compiler and linker arguments that find its library, where code is compiled here.",
        ),
    ] = ""

    def options(self) -> Options:
        """The compiler's options.

        Raises:
            InputError: a value is not admitted.
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
                f"--external-flags must be written as for a shell; they are {self.external_flags!r}: {error}"
            ) from None


@frozen
class SuiteOptions:
    """Many models, targets and levels at once: the options of commands that can do that."""

    suite: Annotated[
        Path | None,
        typer.Option(
            "--suite",
            metavar="DIR",
            help="Instead of a model: those of this folder and of the folders in it. --target may be several "
            "then, separated by commas.",
            show_default=False,
        ),
    ] = None
    levels: Annotated[
        str,
        typer.Option(
            "--levels",
            metavar="LEVEL,…",
            help="Of a suite: levels of optimisation; default: that of --optimize.",
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
            help="Of a suite: keep results here, and take those of the same files and options.",
            show_default=False,
        ),
    ] = None

    def check_unused(self) -> None:
        """Raises InputError if options of a suite are given without one."""
        options = (("--levels", self.levels), ("--workers", self.workers))
        options = (*options, ("--scheduler", self.scheduler), ("--cache", self.cache))
        given = [name for name, value in options if value]
        if given:
            raise InputError(f"{', '.join(given)} must come with --suite DIR; there is none")


Signature = Annotated[
    str | None,
    typer.Option(
        "--signature", metavar="NAME", help="Take the subgraph of this signature; else the first one."
    ),
]


def _absolute(flag: str) -> str:
    """A path, or a flag with one, that means the same in another folder."""
    for prefix in ("-isystem", "-I", "-L"):
        if flag.startswith(prefix):
            return prefix + os.path.abspath(flag.removeprefix(prefix))
    return flag if flag.startswith("-") else os.path.abspath(flag)
