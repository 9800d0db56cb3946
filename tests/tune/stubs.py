"""Executors and runners whose answers are known."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from microfold import target
from microfold.errors import RunError
from microfold.ir.graph import Graph
from microfold.ir.text import to_text
from microfold.options import Options
from microfold.program import Layer, Program
from microfold.target import Target
from microfold.tune.database import Database
from microfold.tune.measure import RunnerError, Times
from microfold.tune.setting import Setting, simulated_setting
from microfold.tune.space import Subject
from microfold.workers.executor import WorkerLost


def subject(graph: Graph, core: str = "cortex-m4", **options: Any) -> Subject:
    return Subject("model", to_text(graph), target.load(core), Options(**options))


def stub_cycles(text: str) -> int:
    """Cycles that look like nothing an estimate says, but are always the same.

    Tiles, which estimates choose for most layers of the tests, are slow: something else is best.
    """
    noise = int.from_bytes(hashlib.sha256(text.encode()).digest()[:2], "little")
    return 1000 + noise + (1 << 16) * ("dsp_tile" in text)


class StubRunner(Struct, frozen=True):
    """A board that takes `stub_cycles` of what a layer's call is.

    Attributes:
        broken: what becomes of boards, by their names: ``fails``.
        poison: a word of what layers' calls are that no board runs; ``by rows``: layers by rows.
        die_once: workers end here as long as a file of this name does not exist.
        faults: what boards fail with faults there, which is no board's fault.
        by_rows: cycles of a whole run of programs with layers by rows, whose layers take few; None: those of
            the layers.
        unplugged: where this file exists, no board answers.
        unplugs: what boards fail with, too, makes this file.
    """

    broken: Mapping[str, str] = field(default_factory=dict[str, str])
    poison: str = ""
    die_once: Path | None = None
    faults: bool = False
    by_rows: int | None = None
    unplugged: Path | None = None
    unplugs: bool = False

    def layer_cycles(self, layer: Layer) -> int:
        """What the calls of a layer take: one for each row, which take longer than a whole tensor."""
        if layer.rows is None:
            return stub_cycles(describe(layer))
        return len(layer.rows) * (1 if self.by_rows is not None else (1 << 16) + stub_cycles(describe(layer)))

    def setting(self, target: Target, options: Options) -> Setting:
        return replace(simulated_setting(target, options), board="stub", clock=1_000_000)

    def check(self, target: Target, options: Options) -> None:
        del target, options

    def times(self, program: Program, lane: str) -> Times:
        if lane in self.broken:
            raise RunnerError(f"the board {self.broken[lane]}")
        if self.die_once is not None and not self.die_once.exists():
            self.die_once.touch()
            os._exit(1)
        if self.unplugged is not None and self.unplugged.exists():
            raise RunnerError("the board is not there")
        layers = [*map(describe, program.layers), "by rows" if program.stream is not None else "whole"]
        if self.poison and any(self.poison in each for each in layers):
            if self.unplugs and self.unplugged is not None:
                self.unplugged.touch()
            raise RunError("it faults") if self.faults else RunnerError("the board fails with it")
        cycles = [self.layer_cycles(layer) for layer in program.layers]
        total = sum(cycles) if self.by_rows is None or program.stream is None else self.by_rows
        return Times(total, [(each, each + 5) for each in cycles])


def describe(layer: Any) -> str:
    """All that tells the calls of a layer apart."""
    numbers = {k: v for k, v in layer.call.parameters.items() if isinstance(v, int)}
    return f"{layer.kernel.name} {layer.call.function.spec} {sorted(numbers.items())} {layer.call.scratch}"


def variants(database: Database) -> list[str]:
    """What was measured of kernels: keys of variants, in order."""
    return [each.variant for setting in database.settings() for each in database.records(setting)]


class InlineExecutor:
    """Does everything at once, here.

    Args:
        dying: how many of the first pieces of work are lost.
        interrupted: with which piece of work Ctrl-C comes.
        deadly: a word of what pieces of work kill whatever does them.
    """

    def __init__(self, lanes: int = 1, dying: int = 0, interrupted: int = -1, deadly: str = ""):
        self.lanes = lanes
        self.dying = dying
        self.interrupted = interrupted
        self.deadly = deadly
        self.done: list[str] = []

    def submit(self, lane: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if len(self.done) == self.interrupted:
            raise KeyboardInterrupt
        self.done.append(lane)
        future: Future[Any] = Future()
        if self.dying or (self.deadly and self.deadly in repr(arguments)):
            self.dying = max(0, self.dying - 1)
            future.set_exception(WorkerLost("it has died"))
        else:
            future.set_result(function(*arguments))
        return future

    def close(self) -> None:
        pass


def slowly(seconds: float, task: int, lane: str) -> tuple[int, str]:
    """A piece of work."""
    time.sleep(seconds)
    return task * task, lane


def deadly(folder: Path, task: int, lane: str) -> int:
    """Ends the process the first time that it is called with a task, and always with task 13."""
    del lane
    mark = folder / str(task)
    if not mark.exists() or task == 13:
        mark.touch()
        os._exit(1)
    return task


def failing(task: int, lane: str) -> int:
    raise ValueError(f"task {task} in {lane}")
