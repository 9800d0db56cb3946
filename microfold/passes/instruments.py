"""Instruments: observers of passes at work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from microfold.errors import GraphError
from microfold.ir.graph import Graph, verify
from microfold.ir.text import to_text
from microfold.passes.context import Instrument, Step
from microfold.support.files import write_file


class Verify(Instrument):
    """Checks every result and names the pass that broke the graph."""

    def before(self, step: Step, graph: Graph) -> None:
        self._check(graph, f"before {step.name}")

    def after(self, step: Step, before: Graph, after: Graph) -> None:
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
    """Prints the graph after passes.

    Attributes:
        passes: names of the passes or sequences to print after; None for every single pass. A name that did
            not run is listed at the end.
        write: receives the text; default: the standard error stream.
    """

    passes: Collection[str] | None = None
    write: Callable[[str], object] = _to_stderr
    _printed: set[str] = field(default_factory=set[str], init=False)

    def after(self, step: Step, before: Graph, after: Graph) -> None:
        if self.passes is None or step.name in self.passes:
            self._printed.add(step.name)
            note = "" if after is not before else " (no change)"
            self.write(f"// after {step.name}{note}\n{to_text(after, elide=True)}")

    def after_sequence(self, step: Step, before: Graph, after: Graph) -> None:
        if self.passes is not None:
            self.after(step, before, after)

    def exit(self) -> None:
        for name in self.passes or ():
            if name not in self._printed:
                self.write(f"// {name} did not run\n")


@dataclass
class DumpIR(Instrument):
    """Writes numbered files: the first graph, then the result of every pass that changed it.

    Attributes:
        directory: created if it is missing.
        elide: leave the data of large constants out.

    Raises:
        InputError: the directory cannot be written.
    """

    directory: Path
    elide: bool = True
    _count: int = field(default=0, init=False)

    def before(self, step: Step, graph: Graph) -> None:
        if self._count == 0:
            self._write("input", graph)

    def after(self, step: Step, before: Graph, after: Graph) -> None:
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
    """Keeps the graph as a pass left it.

    Attributes:
        name: of the pass; if it runs several times, the last one counts.
        graph: None until the pass has run.
    """

    name: str
    graph: Graph | None = None

    def after(self, step: Step, before: Graph, after: Graph) -> None:
        if step.name == self.name:
            self.graph = after


@dataclass
class _Running:
    """A pass at work: when it started, and what the passes that it has run took."""

    started: float
    inner: float = 0.0


@dataclass
class Timing(Instrument):
    """Measures passes.

    Attributes:
        seconds: (pass name, wall-clock seconds) in the order of finishing. Of a pass that runs another, only
            its own time.
    """

    seconds: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    _running: list[_Running] = field(default_factory=list["_Running"], init=False)

    def before(self, step: Step, graph: Graph) -> None:
        self._running.append(_Running(time.perf_counter()))

    def after(self, step: Step, before: Graph, after: Graph) -> None:
        running = self._running.pop()
        spent = time.perf_counter() - running.started
        self.seconds.append((step.name, spent - running.inner))
        if self._running:
            self._running[-1].inner += spent

    def __str__(self) -> str:
        lines = [f"{1000 * spent:9.2f} ms  {name}" for name, spent in self.seconds]
        return "\n".join([*lines, f"{1000 * sum(s for _, s in self.seconds):9.2f} ms  all passes"])
