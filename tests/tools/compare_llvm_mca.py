"""Pipelines as microfold models them, and as LLVM does: the cycles of the blocks that take most time.

    python -m tests.tools.compare_llvm_mca -t cortex-m7 [-O speed] MODEL.tflite ...

runs each model on the target's simulated core, and has llvm-mca (Debian: llvm-19) time the blocks that take
at least a hundredth of its cycles, each following itself. It prints both figures for every block, and for
the model their ratio and how far blocks are apart, weighted by cycles. The two disagree on levels: a change
of code counts as a gain if both see one. LLVM 19 knows M7 and M33, and few vectors of M55; LLVM 22 knows all.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from microfold import target
from microfold.compiler import compile_file
from microfold.options import OPTIMIZE, Options
from microfold.program import Program
from microfold.simulate.pipeline.disassembly import disassemble
from microfold.simulate.pipeline.instruction import Instruction
from microfold.simulate.pipeline.scoreboard import cycles_behind
from microfold.simulate.program import simulator
from microfold.target.pipeline import Pipeline
from tests.oracle import random_inputs

_TOOLS = (*(f"llvm-mca-{version}" for version in range(24, 13, -1)), "llvm-mca")
# Times that a block follows itself: what the first ones wait for does not count.
_ITERATIONS = 100
_LEAST_SHARE = 0.01
_SECONDS = 60
_CYCLES = re.compile(r"Total Cycles:\s+(\d+)")


@dataclass(frozen=True)
class Block:
    """Instructions that ran in a row.

    Attributes:
        runs: how often.
        ours: cycles behind itself, as microfold models the core; theirs: as LLVM does, None if it refuses
            the block.
    """

    instructions: tuple[Instruction, ...]
    runs: int
    ours: int
    theirs: float | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("-t", "--target", default="cortex-m7")
    parser.add_argument("-O", "--optimize", choices=OPTIMIZE, default="balanced")
    options = parser.parse_args()
    core = target.load(options.target)
    tool = next(filter(None, map(shutil.which, _TOOLS)), None)
    if core.pipeline is None:
        parser.error(f"{core.name} has no [pipeline]")
    if tool is None:
        parser.error(f"none of {_TOOLS[0]}, {_TOOLS[-1]} to {_TOOLS[1]} is on the PATH")
    for path in options.models:
        program = compile_file(path, core, Options(optimize=options.optimize))
        print_blocks(path.stem, list(hot_blocks(program, core.pipeline, tool)))


def hot_blocks(program: Program, pipeline: Pipeline, tool: str) -> Iterator[Block]:
    """The blocks that take most of the time, the first one most of all."""
    with simulator(program) as simulation:
        firmware = simulation.firmware(hooked=False)
        types = [(buffer.type.shape, buffer.type.dtype.numpy) for buffer in program.inputs]
        (layers,) = firmware.count([random_inputs(types, 0)], edges=False)
        image = disassemble(firmware.elf)
    counts = {key: figures for layer in layers for key, figures in layer.blocks.items()}
    blocks = [(image.block(key[0], number), count) for key, (number, count, _) in counts.items()]
    timed = [(block, count, cycles_behind(pipeline, [block, block], block)) for block, count in blocks]
    total = sum(count * cycles for _, count, cycles in timed)
    for block, count, cycles in sorted(timed, key=lambda each: -each[1] * each[2]):
        if count * cycles < _LEAST_SHARE * total:
            break
        yield Block(block, count, cycles, llvm_cycles(tool, program.target.cpu_flags, block))


def llvm_cycles(tool: str, cpu_flags: Sequence[str], block: Sequence[Instruction]) -> float | None:
    """Cycles of a block that follows itself, as LLVM models the core; None: it does not take the block."""
    cpu = next(flag.removeprefix("-mcpu=") for flag in cpu_flags if flag.startswith("-mcpu="))
    triple = "thumbv8.1m.main-none-eabi" if cpu in ("cortex-m55", "cortex-m85") else "thumbv7em-none-eabi"
    command = [tool, f"-mtriple={triple}", f"-mcpu={cpu}", f"-iterations={_ITERATIONS}"]
    done = subprocess.run(command, input=assembly(block), capture_output=True, text=True, timeout=_SECONDS)
    found = _CYCLES.search(done.stdout)
    return int(found[1]) / _ITERATIONS if found and done.returncode == 0 else None


def assembly(block: Sequence[Instruction]) -> str:
    """A block as LLVM's assembler takes it: without jumps and addresses that follow the program counter."""
    lines = [".syntax unified", ".thumb"]
    for each in block:
        if not each.name.startswith(("branch", "loop", "it")) and "[pc" not in each.text:
            # Negative offsets have one encoding only, for which LLVM knows no suffix.
            lines.append(each.text.replace(".w", "", 1) if "#-" in each.text else each.text)
    return "\n".join([*lines, ""])


def print_blocks(name: str, blocks: Sequence[Block]) -> None:
    total = sum(block.runs * block.ours for block in blocks)
    for block in blocks:
        share = 100 * block.runs * block.ours / total
        theirs = f"{block.theirs:.1f}" if block.theirs is not None else "refused"
        where = f"{block.instructions[0].address:#x}, {len(block.instructions)} instructions"
        print(f"{share:5.1f} %  {where:32}  {block.ours:4} cycles, by LLVM {theirs}")
    both = [(block.runs * block.ours, block.theirs / block.ours) for block in blocks if block.theirs]
    weight = sum(cycles for cycles, _ in both)
    if weight:
        ratio = sum(cycles * each for cycles, each in both) / weight
        apart = sum(cycles * abs(each - 1) for cycles, each in both) / weight
        print(f"{name}: LLVM's cycles / ours {ratio:.2f}; blocks are {100 * apart:.0f} % apart\n")


if __name__ == "__main__":
    main()
