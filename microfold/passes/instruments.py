"""Instruments: observers of running passes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from microfold.errors import GraphError
from microfold.ir.graph import Graph, verify
from microfold.ir.text import to_text
from microfold.passes.context import Instrument, PipelineStep
from microfold.support.files import write_file


class Verify(Instrument):
    """Instrument that verifies the graph after every pass, and names the pass that broke it."""

    def before(self, step: PipelineStep, graph: Graph) -> None:
        self._check(graph, f"before {step.name}")

    def after(self, step: PipelineStep, before: Graph, after: Graph) -> None:
        if after is not before:
            self._check(after, f"after {step.name}")

    def _check(self, graph: Graph, moment: str) -> None:
        try:
            verify(graph)
        except GraphError as error:
            raise GraphError(f"{moment}: {error}") from error


def _to_stderr(text: str) -> None:
    sys.stderr.write(text)


@dataclass
class PrintIR(Instrument):
    """Instrument that prints the graph after passes.

    Attributes:
        passes: names of passes or sequences after which to print; None: every pass. Passes that did not run
            are listed at the end.
        write: receiver of the text; default: the standard error stream.
    """

    passes: Collection[str] | None = None
    write: Callable[[str], object] = _to_stderr
    _printed: set[str] = field(default_factory=set[str], init=False)

    def after(self, step: PipelineStep, before: Graph, after: Graph) -> None:
        if self.passes is None or step.name in self.passes:
            self._printed.add(step.name)
            note = "" if after is not before else " (no change)"
            self.write(f"// after {step.name}{note}\n{to_text(after, elide=True)}")

    def after_sequence(self, step: PipelineStep, before: Graph, after: Graph) -> None:
        if self.passes is not None:
            self.after(step, before, after)

    def exit(self) -> None:
        for name in self.passes or ():
            if name not in self._printed:
                self.write(f"// {name} did not run\n")


@dataclass
class DumpIR(Instrument):
    """Instrument that writes the first graph and the result of every changing pass to numbered files.

    Attributes:
        directory: output folder, created if it is missing.
        elide: whether to omit the elements of large constants.

    Raises:
        InputError: the directory cannot be written.
    """

    directory: Path
    elide: bool = True
    _count: int = field(default=0, init=False)

    def before(self, step: PipelineStep, graph: Graph) -> None:
        if self._count == 0:
            self._write("input", graph)

    def after(self, step: PipelineStep, before: Graph, after: Graph) -> None:
        if after is not before:
            self._write(step.name, after)
        else:
            self._count += 1

    def _write(self, name: str, graph: Graph) -> None:
        text = to_text(graph, elide=self.elide)
        write_file(self.directory / f"{self._count:04d}_{name}.mf", text)
        self._count += 1


@dataclass
class Snapshot(Instrument):
    """Instrument that keeps the result of a pass.

    Attributes:
        name: name of the pass. If it runs several times, the last result is kept.
        graph: result of the pass; None until it has run.
    """

    name: str
    graph: Graph | None = None

    def after(self, step: PipelineStep, before: Graph, after: Graph) -> None:
        if step.name == self.name:
            self.graph = after


@dataclass
class _Running:
    """Running pass: its start time, and the time of the passes that it has run, in seconds."""

    started: float
    inner: float = 0.0


@dataclass
class Timing(Instrument):
    """Instrument that measures the run time of passes.

    Attributes:
        seconds: (pass name, wall-clock seconds) in the order of completion. The time of a pass excludes the
            passes that it runs.
    """

    seconds: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    _running: list[_Running] = field(default_factory=list["_Running"], init=False)

    def before(self, step: PipelineStep, graph: Graph) -> None:
        self._running.append(_Running(time.perf_counter()))

    def after(self, step: PipelineStep, before: Graph, after: Graph) -> None:
        running = self._running.pop()
        spent = time.perf_counter() - running.started
        self.seconds.append((step.name, spent - running.inner))
        if self._running:
            self._running[-1].inner += spent

    def __str__(self) -> str:
        lines = [f"{1000 * spent:9.2f} ms  {name}" for name, spent in self.seconds]
        return "\n".join([*lines, f"{1000 * sum(s for _, s in self.seconds):9.2f} ms  all passes"])
