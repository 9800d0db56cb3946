"""Results of the Python interface: a build, the page of a report, and a quantised model."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from microfold.program import Program
from microfold.quantization.compare import LayerQuality, OutputQuality
from microfold.quantization.session import Quantisation, SchemeResult
from microfold.quantization.wording import (
    decibels_text,
    layer_name,
    lowest_agreement,
    lowest_snr,
    percent_text,
    verification_text,
)
from microfold.reporting.schema import BuildReport
from microfold.support.files import write_file, write_files
from microfold.support.notebook import html_table

# Height of a page in a notebook, in pixels.
_PAGE_HEIGHT = 700


class BuildResult(Struct, frozen=True, eq=False):
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


class ReportPage(Struct, frozen=True, eq=False):
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


class QuantizationResult(Struct, frozen=True, eq=False):
    """Quantised model, and its comparison with the float model.

    Attributes:
        report: results of all schemes that were tried, and the figures of the float model.
        chosen: result of this model's scheme: figures on the target, verification, losses, and advice.
    """

    report: Quantisation
    chosen: SchemeResult

    @property
    def model(self) -> bytes:
        """Content of the `.tflite` file."""
        return self.chosen.data

    @property
    def outputs(self) -> tuple[OutputQuality, ...]:
        """Loss in each output."""
        return self.chosen.outputs

    @property
    def layers(self) -> tuple[LayerQuality, ...]:
        """Loss in each layer."""
        return self.chosen.layers

    @property
    def advice(self) -> tuple[str, ...]:
        """Sentences about the layer in which most is lost, the cause, and the remedy."""
        return self.chosen.advice

    @property
    def problem(self) -> str:
        """Reason why microfold cannot compile the model; empty if it can."""
        return self.chosen.problem

    @property
    def exact(self) -> bool | None:
        """Whether the C code has the same bits as the reference; None: it was not compared."""
        return self.chosen.verified.exact if self.chosen.verified is not None else None

    @property
    def html(self) -> str:
        """Text of the HTML page that `microfold quantize --html` writes."""
        from microfold.quantization.page import render_quantisation

        return render_quantisation(self.report, self.chosen)

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write the model to a `.tflite` file. Return its path.

        Raises:
            InputError: the file cannot be written.
        """
        write_file(Path(file), self.model)
        return Path(file)

    def __repr__(self) -> str:
        return f"<QuantizationResult {self._summary}>"

    def _repr_html_(self) -> str:
        columns = ("layer", "name", "operator", "type", "SNR, dB", "alone, dB", "saturated, %")
        rows = [
            (
                layer.number,
                layer_name(layer),
                layer.operator,
                layer.type,
                decibels_text(layer.snr),
                decibels_text(layer.own_snr),
                percent_text(layer.saturated),
            )
            for layer in self.layers
        ]
        advice = "".join(f"<p>{html.escape(line)}</p>" for line in self.advice)
        return html_table(self._summary, columns, rows) + advice

    @property
    def _summary(self) -> str:
        snr, agreement = lowest_snr(self.outputs), lowest_agreement(self.outputs)
        parts = [f"{len(self.model):,} bytes"]
        parts += [f"SNR {snr:.1f} dB" if snr is not None else "all outputs equal"] if self.outputs else []
        parts += [f"{percent_text(agreement)} % same answers"] if agreement is not None else []
        parts.append(f"C code {verification_text(self.chosen)}")
        return f"{self.report.model} in {self.chosen.scheme.name}: {', '.join(parts)}"
