"""Firmware image of a model and the simulation harness, built once and run on any number of inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.codegen.environment import environment
from microfold.errors import ToolError
from microfold.simulate import toolchain
from microfold.simulate.boards import SimulatedBoard
from microfold.simulate.emulator import run_image
from microfold.simulate.memory import ImageMemory, image_memory, placed_sections
from microfold.simulate.pipeline.disassembly import disassemble
from microfold.simulate.pipeline.estimate import on_pipeline
from microfold.simulate.sources import Array, LayerPart, LayerTensor, ModelSources, TensorSpec
from microfold.simulate.trace import (
    COUNTS,
    LayerCounts,
    Trace,
    plugin_arguments,
    read_counts,
    timed,
    with_plugin,
)
from microfold.support.elf import load_code
from microfold.support.scratch import ScratchFolder, scratch_folder
from microfold.target.pipeline import Pipeline
from microfold.target.timing import CoreTiming

STACK_SIZE = 64 * 1024
DEFAULT_TIMEOUT = 300.0

_MODEL_FLAGS = ("-std=c99", "-ffunction-sections", "-fdata-sections")
# The harness must not call memcpy or memset, so that only the model links libc. It must not use vectors,
# because it starts before the vector unit is enabled. It must not know the registers that functions keep.
_HARNESS_FLAGS = (
    *_MODEL_FLAGS,
    "-Os",
    "-ffreestanding",
    "-fno-tree-vectorize",
    "-fno-tree-loop-distribute-patterns",
    "-fno-ipa-ra",
)
_HARNESS = ("simulate.h.j2", "link.ld.j2", "startup.c", "semihosting.c", "main.c.j2")
_HOOKED_HARNESS = ("hooks.h.j2", "layers.h.j2", "layers.c.j2")
_WRAP = 1 << 32


class SimulatedRun(Struct, frozen=True):
    """Result of one run of the model.

    Attributes:
        outputs: one flat array per output.
        instructions: instructions from the start of the run function to its return.
        stack: maximum stack depth, in bytes.
        layer_instructions: instructions of each layer, without the hook; empty if the image has no hooks.
        layer_tensors: captured tensors of each layer or layer part, as flat arrays; empty if not requested.
        inner_tensors: tensors that each layer in a loop or branch wrote last, as flat arrays; no
            arrays for layers that did not run. Empty if not requested.
    """

    outputs: tuple[Array, ...]
    instructions: int
    stack: int
    layer_instructions: tuple[int, ...] = ()
    layer_tensors: tuple[tuple[Array, ...], ...] = ()
    inner_tensors: tuple[tuple[Array, ...], ...] = ()


class Firmware:
    """Image for a board, as a context manager that removes the image's temporary folder.

    Args:
        cpu_flags: compiler flags that select the core.
        optimize: optimisation flag of the compiler.
        hooked: whether to compile the model with its layer hook. It costs time, so totals are measured
            without it.
        watches_inner: whether layers in loops and branches also call the hook, to capture their
            tensors. This costs time in the loops.
        marks_begins: whether the starts of layers also call the hook; for traces only.
        extra_flags: additional flags for all files, e.g. warnings.
        compiler: executable of the cross compiler.
    Attributes:
        elf: path of the image.
    Raises:
        ToolError: a tool is missing, or compiling or linking fails.
    """

    def __init__(
        self,
        sources: ModelSources,
        board: SimulatedBoard,
        cpu_flags: Sequence[str],
        *,
        optimize: str = "-O2",
        hooked: bool = False,
        watches_inner: bool = False,
        marks_begins: bool = False,
        extra_flags: Sequence[str] = (),
        compiler: str = toolchain.ARM_COMPILER,
    ):
        self.sources = sources
        self.board = board
        self.hooked = hooked and bool(sources.layers)
        self.watches_inner = self.hooked and watches_inner and bool(sources.inner)
        self.marks_begins = self.hooked and marks_begins
        toolchain.find_tool(compiler)
        toolchain.find_tool(toolchain.EMULATOR)  # fail early
        self._folder = ScratchFolder()
        folder = self._folder.path
        self.elf = folder / f"{sources.name}.elf"
        try:
            self._write_files(folder)
            flags = toolchain.effective_flags([*cpu_flags, *extra_flags, *sources.compile_flags])
            hook = [f'-D{sources.name.upper()}_HOOKS="harness/hooks.h"'] if self.hooked else []
            self._model = [
                toolchain.compile_object(
                    compiler, [*flags, *_MODEL_FLAGS, optimize, *hook], folder, f"model/{name}"
                )
                for name in sources.files
                if name.endswith(".c")
            ]
            self._harness = [
                toolchain.compile_object(compiler, [*flags, *_HARNESS_FLAGS], folder, f"harness/{path.name}")
                for path in sorted((folder / "harness").glob("*.c"))
            ]
            # Stand-ins are not measured, because they are not in a real image.
            self._harness += [
                toolchain.compile_object(compiler, [*flags, *_MODEL_FLAGS], folder, f"model/{name}")
                for name in sources.stand_ins
                if name.endswith(".c")
            ]
            objects = [*self._harness, *self._model, *sources.link_flags]
            self._link_map = toolchain.link(
                compiler, flags, folder, objects, "harness/link.ld", self.elf.name
            )
        except BaseException:
            self._folder.close()
            raise

    def __enter__(self) -> Firmware:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the image."""
        self._folder.close()

    def _write_files(self, folder: Path) -> None:
        """Write the model's files to ``model/``, and the rendered harness to ``harness/``."""
        for part in ("model", "harness"):
            (folder / part).mkdir()
        for name, text in (dict(self.sources.stand_ins) | dict(self.sources.files)).items():
            (folder / "model" / name).write_text(text, encoding="utf-8")
        values: dict[str, Any] = {
            "sources": self.sources,
            "prefix": self.sources.name.upper(),
            "board": self.board,
            "stack_size": STACK_SIZE,
            "hooked": self.hooked,
            "watches_inner": self.watches_inner,
            "marks_begins": self.marks_begins,
        }
        jinja = environment()
        for name in (*_HARNESS, *(_HOOKED_HARNESS if self.hooked else ())):
            text = jinja.get_template(f"simulate/{name}").render(values)
            (folder / "harness" / name.removesuffix(".j2")).write_text(text + "\n", encoding="utf-8")

    def memory(self, stack: int) -> ImageMemory:
        """Return flash and RAM of the image. ``stack`` is the measured stack, in bytes."""
        return image_memory(
            self._link_map,
            self._model,
            self._harness,
            self.board.ram,
            stack,
        )

    def run(
        self,
        calls: Sequence[Sequence[Array]],
        *,
        capture_layers: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> tuple[SimulatedRun, ...]:
        """Run the model once per call, in order, on one context that keeps its state between calls.

        Args:
            calls: one array per input, per call.
            capture_layers: whether to return the layers' tensors. This requires a hooked image; the tensors
                of inner layers also require `watches_inner`.
            timeout: time limit for all calls together, in seconds of real time.
        Raises:
            InputError: an input does not match.
            ToolError: the simulation fails or takes too long.
        """
        captured = capture_layers and self.hooked
        with scratch_folder() as folder:
            self._execute(folder, calls, capture_layers, timeout)
            results = _Reader(_written(folder / "results.bin"))
            tensors = _Reader(_written(folder / "layers.bin") if captured else b"")
            watched = captured and self.watches_inner
            # Layers that did not run leave holes, or a shorter file.
            inner = _written(folder / "inner.bin") if watched else b""
            inner = _Reader(inner.ljust(len(calls) * self.sources.inner_places[-1], b"\0"))
        found = tuple(self._read_call(results, tensors if captured else None) for _ in calls)
        if watched:
            found = tuple(replace(run, inner_tensors=self._read_inner(inner)) for run in found)
            inner.expect_end()
        results.expect_end()
        tensors.expect_end()
        return found

    def trace(
        self,
        calls: Sequence[Sequence[Array]],
        timing: CoreTiming | Pipeline,
        *,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> tuple[Trace, ...]:
        """Return the executed instructions and cycles of each call; arguments and errors as for `run`."""
        runs = self.count(calls, edges=isinstance(timing, Pipeline), timeout=timeout)
        if isinstance(timing, CoreTiming):
            code = load_code(self.elf)
            return tuple(timed(run, code, timing) for run in runs)
        image = disassemble(self.elf)
        return tuple(on_pipeline(run, image, timing) for run in runs)

    def count(
        self, calls: Sequence[Sequence[Array]], *, edges: bool, timeout: float = DEFAULT_TIMEOUT
    ) -> list[list[LayerCounts]]:
        """Count the runs of each block of instructions, for each call and layer; errors as for `run`.

        Args:
            edges: whether to count also the transitions between blocks.
        """
        sections = list(placed_sections(self._link_map))
        with scratch_folder() as folder:
            arguments = plugin_arguments(sections, self.sources.name, self._harness, edges=edges)
            with_plugin(
                folder, arguments, lambda plugin: self._execute(folder, calls, False, timeout, plugin)
            )
            counts = _written(folder / COUNTS).decode("ascii", errors="replace")
        runs = list(read_counts(counts))
        if len(runs) != len(calls):
            raise ToolError(f"QEMU's plugin must record {len(calls)} runs; it recorded {len(runs)}")
        return runs

    def _execute(
        self,
        folder: Path,
        calls: Sequence[Sequence[Array]],
        capture_layers: bool,
        timeout: float,
        plugin: str = "",
    ) -> None:
        """Run the image, which reads ``inputs.bin`` in the folder and writes its results to the folder."""
        inputs = b"".join(self.sources.pack(call, number) for number, call in enumerate(calls))
        request = np.array([len(calls), capture_layers], "<u4").tobytes()
        (folder / "inputs.bin").write_bytes(request + inputs)
        run_image(self.board, self.elf, folder, timeout, list(placed_sections(self._link_map)), plugin)

    def _read_call(self, results: _Reader, tensors: _Reader | None) -> SimulatedRun:
        ticks, empty_ticks, seconds, stack = results.integers(4)
        layers: tuple[int, ...] = ()
        if self.hooked:
            (hook_ticks,) = results.integers(1)
            hook = self.board.instructions(hook_ticks)
            layer_ticks = results.integers(len(self.sources.layers))
            runs = Counter(self.sources.hooks)
            layers = tuple(
                max(0, self.board.instructions(ticks) - hook * runs[index])
                for index, ticks in enumerate(layer_ticks)
            )
        outputs = tuple(results.array(spec) for spec in self.sources.outputs)
        captured: tuple[tuple[Array, ...], ...] = ()
        if tensors is not None:
            parts = self.sources.parts or [LayerPart(n.index, n.tensors) for n in self.sources.layers]
            captured = tuple(tuple(tensors.array(t) for t in part.tensors) for part in parts)
        # Both calls pass the same arguments. The empty function itself executes only its return.
        total = self.board.instructions(_unwrapped(ticks, seconds, self.board.counter_hz))
        total -= self.board.instructions(empty_ticks) - 1
        return SimulatedRun(outputs, total, stack, layers, captured)

    def _read_inner(self, tensors: _Reader) -> tuple[tuple[Array, ...], ...]:
        found: list[tuple[Array, ...]] = []
        for layer in self.sources.inner:
            (ran,) = tensors.integers(1)
            arrays = tuple(tensors.array(t) for t in layer.tensors)
            found.append(arrays if ran else ())
        return tuple(found)


def _unwrapped(ticks: int, seconds: int, hertz: int) -> int:
    """Return the ticks of a 32-bit counter including wraps, from whole seconds with an error below one."""
    wraps = round((seconds * hertz - ticks) / _WRAP)
    return ticks + wraps * _WRAP


def _written(path: Path) -> bytes:
    """Return the content of a file that the simulation has written.

    Raises:
        ToolError: the simulation has not written the file.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ToolError(
            f"{toolchain.EMULATOR} must write {path.name}, but it ended successfully without "
            f"({error.strerror}); is it QEMU 7 or later?"
        ) from None


class _Reader:
    """Reader of the values of a result file, in order."""

    def __init__(self, data: bytes):
        self._data = data
        self._position = 0

    def _take(self, size: int) -> bytes:
        piece = self._data[self._position : self._position + size]
        if len(piece) != size:
            raise ToolError(
                f"the simulation must write {self._position + size} bytes; it wrote {len(self._data)}"
            )
        self._position += size
        return piece

    def integers(self, count: int) -> list[int]:
        return [int(value) for value in np.frombuffer(self._take(4 * count), "<u4")]

    def array(self, spec: TensorSpec | LayerTensor) -> Array:
        return np.frombuffer(self._take(spec.size), spec.dtype).copy()

    def expect_end(self) -> None:
        if self._position != len(self._data):
            raise ToolError(f"the simulation must write {self._position} bytes; it wrote {len(self._data)}")
