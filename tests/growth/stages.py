"""The stages of a compilation, each metered: by seconds, or by counted steps."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from microfold.analysis.ranges import analyze
from microfold.codegen.emit import emit
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph, verify
from microfold.ir.parse import parse
from microfold.ir.text import to_text
from microfold.ir.tree import to_tree
from microfold.options import Options
from microfold.passes.context import Instrument, PassContext
from microfold.passes.kinds import Pass
from microfold.pipeline import default_pipeline
from microfold.reporting.data import build_report
from microfold.target import Target, load
from microfold.transform import available

Meter = Callable[[], float]
_OURS = f"{os.sep}microfold{os.sep}"


class Steps:
    """Counts lines of the compiler as they are run; each turn of a loop or comprehension is one.

    Unlike seconds, they are the same on every machine, however busy. What C code, numpy and the templates'
    engine do is not seen.

    Attributes:
        places: steps by the code that made them.
    """

    def __init__(self) -> None:
        self.places: Counter[CodeType] = Counter()

    def __call__(self) -> float:
        return self.places.total()

    @contextmanager
    def counting(self) -> Iterator[Steps]:
        """Count what happens within."""
        places = self.places

        def line(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                places[frame.f_code] += 1
            return line

        def call(frame: FrameType, _event: str, _: Any) -> Any:
            return line if _OURS in frame.f_code.co_filename else None

        old = sys.gettrace()
        sys.settrace(call)
        try:
            yield self
        finally:
            sys.settrace(old)


@dataclass
class Stages(Instrument):
    """What each stage took; an instrument for the passes among them.

    Attributes:
        spent: by stage; what a pass took, over all its runs and without what it runs itself.
    """

    meter: Meter = time.perf_counter
    spent: Counter[str] = field(default_factory=Counter[str])
    _started: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    def before(self, step: Pass, graph: Graph) -> None:
        self._begin()

    def after(self, step: Pass, before: Graph, after: Graph) -> None:
        self._end(step.name)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what happens within as this stage."""
        self._begin()
        yield
        self._end(name)

    def _begin(self) -> None:
        self._started.append((self.meter(), self._inside()))

    def _end(self, name: str) -> None:
        start, inside = self._started.pop()
        self.spent[name] += self.meter() - start - (self._inside() - inside)

    def _inside(self) -> float:
        return sum(self.spent.values())


def whole_compilation(graph: Graph, stages: Stages, target: Target | None = None) -> dict[str, str]:
    """From text to C, with all that may be asked for on the way; the C files."""
    target = target or load("cortex-m4")
    with stages.stage("(text)"):
        text = to_text(graph)
    with stages.stage("(parse)"):
        parse(text)
    with stages.stage("(tree)"):
        to_tree(graph)
    with stages.stage("(verify)"):
        verify(graph)
    with stages.stage("(ranges)"):
        analyze(graph)
    with stages.stage("(selection and plan)"):
        program = compile_graph(graph, target, Options(), context=PassContext(instruments=[stages]))
    with stages.stage("(code)"):
        files = emit(program)
    with stages.stage("(report)"):
        build_report(program, None)
    return files


def other_passes(graph: Graph, stages: Stages) -> None:
    """The passes that the default pipeline does not run, each alone."""
    names = default_pipeline().names()
    for name, item in available().items():
        if name not in names:
            step = item if isinstance(item, Pass) else item()
            step(graph, PassContext(instruments=[stages]))
