"""Results of the Python interface: a build, and the page of a report."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from pathlib import Path

from microfold.program import Program
from microfold.reporting.schema import BuildReport
from microfold.support.files import write_file, write_files
from microfold.support.frozen import frozen
from microfold.support.notebook import html_table

# Height of a page in a notebook, in pixels.
_PAGE_HEIGHT = 700


@frozen(eq=False)
class BuildResult:
    """C files and report of a model.

    Attributes:
        program: compiled model, before code generation.
        files: content of each file by its name, as `microfold build` writes them.
        report: report of the build; docs/report-json.md describes its fields.
    """

    program: Program
    files: Mapping[str, str | bytes]
    report: BuildReport

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write all files to a folder, or none if an error occurs. Return their paths.

        Raises:
            InputError: the folder cannot be written.
        """
        write_files(Path(folder), self.files)
        return [Path(folder) / name for name in self.files]

    def __repr__(self) -> str:
        ram, flash = self.report.ram, self.report.flash
        return (
            f"<BuildResult {self.program.name} for {self.program.target.name}: {len(self.files)} files, "
            f"RAM {ram.arena + ram.state:,} bytes, weights {flash.weights:,} bytes>"
        )

    def _repr_html_(self) -> str:
        ram, flash = self.report.ram, self.report.flash
        rows = [
            ("RAM: arena", ram.arena, "bytes"),
            ("RAM: state", ram.state, "bytes"),
            ("RAM: stack", ram.stack, "bytes, maximum"),
            ("flash: weights", flash.weights, "bytes"),
            ("flash: code", flash.code, "bytes"),
            ("flash: library functions", flash.library, "bytes"),
            ("multiply-accumulates", self.report.macs, "per run"),
            ("instructions", self.report.estimated_instructions, "per run, estimated"),
            ("cycles", self.report.estimated_cycles, "per run, estimated"),
        ]
        title = f"{self.program.name} for {self.program.target.name}"
        return html_table(title, ("resource", "amount", "unit"), rows)


@frozen(eq=False)
class ReportPage:
    """HTML page of a build, which is one self-contained file.

    Attributes:
        name: name of the model.
        html: text of the page.
        report: report of the build; docs/report-json.md describes its fields.
    """

    name: str
    html: str
    report: BuildReport

    def write(self, file: str | os.PathLike[str]) -> Path:
        """Write the page to a file. Return its path.

        Raises:
            InputError: the file cannot be written.
        """
        write_file(Path(file), self.html)
        return Path(file)

    def __repr__(self) -> str:
        return f"<ReportPage of {self.name} for {self.report.target}>"

    def _repr_html_(self) -> str:
        # A frame keeps the styles of the page and of the notebook apart.
        page = html.escape(self.html)
        return f'<iframe srcdoc="{page}" width="100%" height="{_PAGE_HEIGHT}" style="border:0"></iframe>'
