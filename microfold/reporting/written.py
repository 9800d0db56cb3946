"""Files that a build writes: generated C, weights, report and page."""

from __future__ import annotations

from collections.abc import Mapping

from microfold.codegen.emit import Build, emit_build
from microfold.codegen.stack_size import state_stacks
from microfold.program import Program
from microfold.reporting.data import build_report
from microfold.reporting.schema import BuildReport
from microfold.support.json_text import to_json
from microfold.verification.measure import measure


def measured_build(program: Program) -> tuple[Build, BuildReport]:
    """Return the generated files of a program and its report.

    Sizes of code and stack are unknown if the target's compiler is missing.
    """
    built = emit_build(program)
    measured = measure(program, built.files)
    built = state_stacks(built, [(program, measured.stack if measured else None)])
    return built, build_report(program, measured, built.id)


def written_files(
    program: Program, built: Build, report: BuildReport, html: bool = False
) -> dict[str, str | bytes]:
    """Return all files of a build: name to content.

    Args:
        html: whether to include the HTML page.
    """
    files: dict[str, str | bytes] = {**built.files, **report_files(program.name, report, html)}
    if built.blob is not None:
        files[f"{program.name}_weights.bin"] = built.blob
    return files


def report_files(name: str, report: BuildReport, html: bool) -> Mapping[str, str]:
    """Return the report files of a build: name to content.

    Args:
        name: name of the model.
        html: whether to include the HTML page.
    """
    files = {f"{name}_report.json": to_json(report) + "\n"}
    if html:
        from microfold.reporting.page.page import collect_page, render_page

        files[f"{name}_report.html"] = render_page(collect_page(report))
    return files
