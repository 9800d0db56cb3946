"""Simulation of a model: outputs, instructions per layer and in total, flash, RAM and stack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from microfold.errors import ToolError
from microfold.simulate import toolchain
from microfold.simulate.boards import SimulatedBoard
from microfold.simulate.firmware import DEFAULT_TIMEOUT, Firmware, SimulatedRun
from microfold.simulate.memory import ImageMemory
from microfold.simulate.sources import Array, ModelSources
from microfold.target.pipeline import Pipeline
from microfold.target.timing import CoreTiming


class SimulationResult(Struct, frozen=True):
    """Result of a simulation.

    Attributes:
        outputs: one flat array per output, for each call.
        instructions: instructions of the run function for each call, measured without layer hooks.
        layer_instructions: instructions of each layer, for each call; empty if not requested. Their sum only
            approximates the total, because the hook affects inlining and register allocation.
        layer_tensors: tensors of each layer, or of each of `ModelSources.parts` if present, for each call;
            empty if not captured.
        inner_tensors: tensors that each layer in a loop or branch wrote last, for each call; no arrays
            for layers that did not run. Empty if not captured.
        memory: memory of the image without hooks; the stack is the maximum over all calls.
    """

    outputs: tuple[tuple[Array, ...], ...]
    instructions: tuple[int, ...]
    layer_instructions: tuple[tuple[int, ...], ...]
    layer_tensors: tuple[tuple[tuple[Array, ...], ...], ...]
    inner_tensors: tuple[tuple[tuple[Array, ...], ...], ...]
    memory: ImageMemory


class Cycles(Struct, frozen=True):
    """Estimated cycles.

    Attributes:
        total: cycles of each call, without layer hooks.
        layers: cycles of each layer for each call, with layer hooks.
        least, least_of_layers: lower bounds of `total` and `layers` without stalls, see `Trace`.
    """

    total: tuple[int, ...]
    layers: tuple[tuple[int, ...], ...]
    least: tuple[int, ...]
    least_of_layers: tuple[tuple[int, ...], ...]


class Simulator:
    """Simulator of a model on a board, as a context manager. It builds and keeps images on demand.

    Args:
        cpu_flags: compiler flags that select the core.
        optimize: optimisation flag of the compiler for the model.
        extra_flags: additional compiler flags.
        compiler: executable of the cross compiler.
    """

    def __init__(
        self,
        sources: ModelSources,
        board: SimulatedBoard,
        cpu_flags: Sequence[str],
        *,
        optimize: str = "-O2",
        extra_flags: Sequence[str] = (),
        compiler: str = toolchain.ARM_COMPILER,
    ):
        self._sources = sources
        self._board = board
        self._cpu_flags = tuple(cpu_flags)
        self._optimize = optimize
        self._extra_flags = tuple(extra_flags)
        self._compiler = compiler
        self._images: dict[tuple[bool, bool, bool], Firmware] = {}

    def __enter__(self) -> Simulator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the images."""
        while self._images:
            self._images.popitem()[1].close()

    def firmware(self, *, hooked: bool, watches_inner: bool = False, marks_begins: bool = False) -> Firmware:
        """Return the image with the given kinds of layer hooks; see `Firmware`.

        Raises:
            ToolError: a tool is missing or fails.
        """
        kind = hooked, watches_inner and bool(self._sources.inner), marks_begins
        if kind not in self._images:
            self._images[kind] = Firmware(
                self._sources,
                self._board,
                self._cpu_flags,
                optimize=self._optimize,
                hooked=hooked,
                watches_inner=watches_inner,
                marks_begins=marks_begins,
                extra_flags=self._extra_flags,
                compiler=self._compiler,
            )
        return self._images[kind]

    def run(
        self,
        calls: Sequence[Sequence[Array]],
        *,
        layers: bool = True,
        capture_layers: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> SimulationResult:
        """Run the model once per call on one context, from its initial state.

        Args:
            calls: one array per input, per call.
            layers: whether to count the instructions of each layer, in a second run with layer hooks.
            capture_layers: whether to return the tensors of all layers, including inner ones. The counts then
                include the hooks of inner layers. Implies ``layers``.
            timeout: time limit for either run, in seconds of real time.
        Raises:
            InputError: an input does not match.
            ToolError: a tool is missing or fails, the core faults, or a run takes too long.
        """
        plain = self.firmware(hooked=False)
        done = plain.run(calls, timeout=timeout)
        hooked: tuple[SimulatedRun, ...] = ()
        if layers or capture_layers:
            image = self.firmware(hooked=True, watches_inner=capture_layers)
            hooked = image.run(calls, capture_layers=capture_layers, timeout=timeout)
            self._check_same_outputs(done, hooked)
        return SimulationResult(
            outputs=tuple(call.outputs for call in done),
            instructions=tuple(call.instructions for call in done),
            layer_instructions=tuple(call.layer_instructions for call in hooked),
            layer_tensors=tuple(call.layer_tensors for call in hooked) if capture_layers else (),
            inner_tensors=tuple(call.inner_tensors for call in hooked) if capture_layers else (),
            memory=plain.memory(max((call.stack for call in done), default=0)),
        )

    def trace(
        self,
        calls: Sequence[Sequence[Array]],
        timing: CoreTiming | Pipeline,
        *,
        only_calls: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> Cycles:
        """Estimate cycles by applying a timing table or a pipeline to the executed instructions.

        Args:
            only_calls: whether to exclude the work before the call of a layer, e.g. copies of rows.

        Raises:
            ToolError: as for `run`; or this machine has no C compiler, or its QEMU supports no plugins.
        """
        plain = self.firmware(hooked=False).trace(calls, timing, timeout=timeout)
        hooked = self.firmware(hooked=True, marks_begins=only_calls).trace(calls, timing, timeout=timeout)
        # If starts are also marked, every second count belongs to a call.
        own = slice(1, None, 2) if only_calls else slice(None)
        return Cycles(
            tuple(sum(trace.cycles) for trace in plain),
            tuple(self._by_layer(trace.cycles[own]) for trace in hooked),
            tuple(sum(trace.least) for trace in plain),
            tuple(self._by_layer(trace.least[own]) for trace in hooked),
        )

    def _by_layer(self, passed: Sequence[int]) -> tuple[int, ...]:
        found = [0] * len(self._sources.layers)
        for layer, count in zip(self._sources.hooks, passed, strict=False):
            found[layer] += count
        return tuple(found)

    def _check_same_outputs(self, plain: Sequence[SimulatedRun], hooked: Sequence[SimulatedRun]) -> None:
        """Check that hooks do not change the outputs. If they do, the code reads uninitialised memory."""
        for number, (one, other) in enumerate(zip(plain, hooked, strict=True)):
            for index, (a, b) in enumerate(zip(one.outputs, other.outputs, strict=True)):
                if not np.array_equal(a.view(np.uint8), b.view(np.uint8)):
                    raise ToolError(
                        f"{self._sources.name} must compute the same outputs with and without layer hooks; "
                        f"output {index} of call {number} differs, so the code or the compiler is wrong"
                    )


def run(
    sources: ModelSources,
    board: SimulatedBoard,
    cpu_flags: Sequence[str],
    calls: Sequence[Sequence[Array]],
    *,
    layers: bool = True,
    capture_layers: bool = False,
    optimize: str = "-O2",
    extra_flags: Sequence[str] = (),
    compiler: str = toolchain.ARM_COMPILER,
    timeout: float = DEFAULT_TIMEOUT,
) -> SimulationResult:
    """Simulate a model once; arguments and errors as for `Simulator` and its ``run``."""
    with Simulator(
        sources, board, cpu_flags, optimize=optimize, extra_flags=extra_flags, compiler=compiler
    ) as simulator:
        return simulator.run(calls, layers=layers, capture_layers=capture_layers, timeout=timeout)
