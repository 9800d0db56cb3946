"""microfold export"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from microfold.cli.common import compile_model, print_json, working
from microfold.cli.default_target import PORTABLE, choose_target
from microfold.cli.notices import say
from microfold.cli.options import CodeOptions, Html, Json, Model, TargetName
from microfold.cli.outputs import named
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError


def _formats(incomplete: str) -> list[str]:
    from microfold.export.formats import FORMATS

    return [each.name for each in FORMATS if each.name.startswith(incomplete)]


def export(
    model: Model,
    code: CodeOptions,
    passes: PassOptions,
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="platformio, arduino, zephyr, esp-idf, cmsis-pack, cmake or make.",
            autocompletion=_formats,
            show_default=False,
        ),
    ],
    target: TargetName = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            callback=named,
            metavar="PATH",
            help="Folder for the package. [default: name of the package]",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        str,
        typer.Option("--package-version", metavar="VERSION", help="Version of the package in the manifest."),
    ] = "1.0.0",
    author: Annotated[
        str, typer.Option("--author", metavar="NAME", help="Author in the manifest: a name, or Name <mail>.")
    ] = "unknown",
    url: Annotated[
        str,
        typer.Option(
            "--url", metavar="URL", help="Home page of the package in the manifest.", show_default=False
        ),
    ] = "",
    vendor: Annotated[
        str,
        typer.Option(
            "--vendor",
            metavar="NAME",
            help="Vendor of a CMSIS pack. [default: the author]",
            show_default=False,
        ),
    ] = "",
    html: Html = False,
    as_json: Json = False,
) -> None:
    """Compile a model to a package for a firmware project.

    Formats: PlatformIO, Arduino, Zephyr, ESP-IDF, CMSIS, CMake and Make.
    """
    from microfold.export.formats import find
    from microfold.export.names import package_name
    from microfold.export.package import About, check_exportable, make_package

    chosen, about = find(kind), About(version, author, url, vendor)
    if vendor and kind != "cmsis-pack":
        raise InputError(f"--vendor requires --format cmsis-pack; got --format {kind}: remove --vendor")
    if chosen.needs_url and not url and not as_json:
        say("no --url given: the manifest requires a home page, so it has an address of example.com")
    target = choose_target(target, PORTABLE, as_json)
    program = compile_model(model, target, code, passes, as_json)
    check_exportable(program, chosen)
    with working("measuring code size, running the reference", as_json):
        from microfold.export.publish import publish
        from microfold.reporting.terminal.build import print_export
        from microfold.reporting.written import measured_build, report_files

        built, report = measured_build(program)
        files = make_package(program, built, report, chosen, about, report_files(program.name, report, html))
    folder = output if output is not None else Path(package_name(program.name))
    publish(folder, files)
    if as_json:
        print_json({"format": kind, "folder": str(folder), "files": sorted(files), "report": report})
    else:
        print_export(program, report, folder, sorted(files))
