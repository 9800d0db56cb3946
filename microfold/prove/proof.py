"""Proof of a program: one analysis for each layer, of any content of the context.

A layer is analysed with an arena, a state and inputs of any bytes. Hence its proof holds whatever ran before,
and the proofs of all layers together are a proof of every run, in any state. The analysed program has a
function that runs a single layer (the option `step`); its kernels are those of other builds.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from msgspec import Struct

from microfold.codegen.emit import emit
from microfold.errors import InputError
from microfold.program import Program
from microfold.prove.analyser import Alarm, Analysis, analyse, version
from microfold.support.scratch import scratch_folder
from microfold.target import Target

# Conditions of every proof.
ASSUMPTIONS = (
    "the analysis is sound: Frama-C's Eva, its C parser and its models of the C library",
    "the code is the C form of each kernel (MF_NO_ASM); tests compare it with the assembly",
    "conversions to narrower signed types wrap, as GCC and Clang define them",
    "context and buffers are aligned as their types require, and the stack is large enough",
)
# Features whose C needs intrinsics of a compiler, which Frama-C lacks.
_INTRINSICS = ("dsp", "mve")


class LayerProof(Struct, frozen=True):
    """Analysis of one layer, which may be a proof."""

    layer: int
    name: str
    operator: str
    kernel: str
    analysis: Analysis

    @property
    def proved(self) -> bool:
        """Whether the layer has no undefined behaviour."""
        return not self.analysis.alarms and not self.analysis.problem


class ModelProof(Struct, frozen=True):
    """Proofs of all layers.

    Attributes:
        tool: name and version of the analyser.
        sha256: hashes of the analysed C files, by name.
    """

    model: str
    target: str
    tool: str
    sha256: Mapping[str, str]
    layers: tuple[LayerProof, ...]

    @property
    def proved(self) -> bool:
        """Whether no run of the model has undefined behaviour, under `ASSUMPTIONS`."""
        return all(layer.proved for layer in self.layers)

    @property
    def alarms(self) -> list[Alarm]:
        """Alarms of all layers; each place and property once."""
        return [*dict.fromkeys(alarm for layer in self.layers for alarm in layer.analysis.alarms)]


def check_provable(program: Program) -> None:
    """Check that the C of a program can be analysed.

    Raises:
        InputError: it cannot.
    """
    target, options = program.target, program.options
    missing = sorted(target.features & {*_INTRINSICS})
    if missing:
        raise InputError(
            f"the analyser knows portable C only; the C for {target.name} uses intrinsics "
            f"({', '.join(missing)}): take -t host"
        )
    if options.io != "arena" or options.memory != "context":
        raise InputError(
            "proofs are for contexts that own all memory (--io arena, --memory context); "
            f"got --io {options.io}, --memory {options.memory}"
        )


def prove(
    program: Program,
    seconds: float,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ModelProof:
    """Analyse all layers of a program.

    Args:
        program: program with the option `step`.
        seconds: limit of real time for each layer.
        jobs: number of analyses at a time; None: one for each processor.
        progress: called with the number of analysed layers, and of all.

    Raises:
        ToolError: Frama-C is not installed, or cannot be run.
        InputError: the C cannot be analysed, see `check_provable`.
    """
    check_provable(program)
    tool = f"Frama-C {version()}"
    files = emit(program)
    count = len(program.layers)
    found: dict[int, Analysis] = {}
    with scratch_folder() as folder, ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        waiting = {
            pool.submit(_analyse_layer, program, folder, layer, seconds): layer for layer in range(count)
        }
        for future in as_completed(waiting):
            found[waiting[future]] = future.result()
            if progress is not None:
                progress(len(found), count)
    layers = tuple(
        LayerProof(index, layer.name, layer.node.op.name, layer.kernel.name, found[index])
        for index, layer in enumerate(program.layers)
    )
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(files.items())}
    return ModelProof(program.name, program.target.name, tool, hashes, layers)


def harness(name: str, layer: int) -> str:
    """Return C with a main function that runs one layer of a program on a context of any bytes."""
    return f"""#include "__fc_builtin.h"
#include "{name}.h"

static {name}_context network;

int main(void)
{{
    Frama_C_make_unknown((char *)&network, sizeof network);
    {name}_step(&network, {layer});
    return 0;
}}
"""


def _analyse_layer(program: Program, folder: Path, layer: int, seconds: float) -> Analysis:
    """Analyse one layer of the program whose files are in a folder."""
    own = folder / f"layer{layer}"
    own.mkdir()
    main = own / "main.c"
    main.write_text(harness(program.name, layer), encoding="utf-8")
    return analyse(own, [main, *sorted(folder.glob("*.c"))], folder, _pointer_bits(program.target), seconds)


def _pointer_bits(target: Target) -> int:
    """Return the number of bits of a pointer on a target: a Cortex-M core, or this machine."""
    return 32 if target.cpu_flags else 8 * struct.calcsize("P")
