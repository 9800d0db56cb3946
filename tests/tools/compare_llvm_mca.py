"""Pipelines as microfold models them, and as LLVM does: the cycles of the blocks that take most time.

    python -m tests.tools.compare_llvm_mca -t cortex-m7 [-O speed] MODEL.tflite ...

runs each model on the target's simulated core, and has llvm-mca (Debian: llvm-19) time the blocks that take
at least a hundredth of its cycles, each following itself. It prints both figures for every block, and for
the model their ratio and how far blocks are apart, weighted by cycles. The two disagree on levels: a change
of code counts as a gain if both see one:

    python -m tests.tools.compare_llvm_mca -t cortex-m7 --save before.json MODEL.tflite ...
    python -m tests.tools.compare_llvm_mca -t cortex-m7 --before before.json MODEL.tflite ...

the one in the old checkout, the other in the new one, say what each sees of every model, and end with 1
unless they agree on all. Blocks that LLVM does not take, and the many that take little time, count as
microfold models them; where those are more than half of the cycles, there is no second opinion. LLVM 19
knows M7 and M33, and few vectors of M55; LLVM 22 knows all. For M33 it has the model of its M4. M0+, M3 and
M4 have no pipeline here.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

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
_CORE = re.compile(r"cortex-m\d+(plus)?")
_TRIPLES = {
    "cortex-m0plus": "thumbv6m-none-eabi",
    "cortex-m3": "thumbv7m-none-eabi",
    "cortex-m55": "thumbv8.1m.main-none-eabi",
    "cortex-m85": "thumbv8.1m.main-none-eabi",
}
# What GCC's suffixes of -mcpu take from a core, in LLVM's words.
_WITHOUT = {"nodsp": "-dsp", "nomve": "-mve", "nomve.fp": "-mve.fp", "nofp": "-mve.fp"}
# Of a model's cycles, in percent: less is no gain and no loss.
_LEAST_CHANGE = 0.5
# Of a model's cycles, in blocks that LLVM takes: with less it has no opinion.
_LEAST_TIMED = 0.5


class Block(Struct, frozen=True):
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


class Timed(Struct, frozen=True):
    """What ran of a model.

    Attributes:
        hot: the blocks that take most of the time, the first one most of all.
        rest: cycles of all others, as microfold models them.
    """

    hot: tuple[Block, ...]
    rest: int

    @property
    def ours(self) -> float:
        return self.rest + sum(block.runs * block.ours for block in self.hot)

    @property
    def theirs(self) -> float:
        """As LLVM models them; what it did not time, as microfold does."""
        return self.rest + sum(
            block.runs * (block.ours if block.theirs is None else block.theirs) for block in self.hot
        )

    @property
    def share(self) -> float:
        """Of our cycles, those in blocks that LLVM timed."""
        timed = sum(block.runs * block.ours for block in self.hot if block.theirs is not None)
        return timed / self.ours if self.ours else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("-t", "--target", default="cortex-m7")
    parser.add_argument("-O", "--optimize", choices=OPTIMIZE, default="balanced")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the models' cycles there")
    parser.add_argument("--before", type=Path, metavar="FILE", help="judge what has changed since --save")
    options = parser.parse_args()
    core = target.load(options.target)
    tool = next(filter(None, map(shutil.which, _TOOLS)), None)
    if core.pipeline is None:
        parser.error(f"{core.name} has no [pipeline]")
    if tool is None:
        parser.error(f"none of {_TOOLS[0]}, {_TOOLS[-1]} to {_TOOLS[1]} is on the PATH")
    try:
        flags = llvm_flags(core.name, core.cpu_flags)
    except ValueError as error:
        parser.error(str(error))
    totals: dict[str, dict[str, float]] = {}
    for path in options.models:
        program = compile_file(path, core, Options(optimize=options.optimize))
        found = timed_blocks(program, core.pipeline, [tool, *flags])
        print_blocks(path.stem, found.hot)
        totals[path.stem] = {"ours": found.ours, "theirs": found.theirs, "share": found.share}
    if options.save:
        options.save.write_text(json.dumps(totals, indent=1) + "\n", encoding="utf-8")
    if options.before:
        verdicts = judged(json.loads(options.before.read_text(encoding="utf-8")), totals)
        print("\n".join(text for text, _ in verdicts))
        sys.exit(not all(agreed for _, agreed in verdicts))


def judged(
    before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]]
) -> list[tuple[str, bool]]:
    """Of each model, what the two see of a change, and whether they agree on it.

    Args:
        before, after: by model, cycles by microfold's model, "ours", and LLVM's, "theirs", and the share of
            them that LLVM timed.
    """
    found: list[tuple[str, bool]] = []
    for name, totals in after.items():
        if name not in before:
            found.append((f"{name}: not among the figures before", False))
            continue
        changes = [100 * (totals[key] / before[name][key] - 1) for key in ("ours", "theirs")]
        signs = [0 if abs(change) < _LEAST_CHANGE else -1 if change < 0 else 1 for change in changes]
        timed = min(totals["share"], before[name]["share"])
        agreed = signs[0] == signs[1] and timed >= _LEAST_TIMED
        no = "they disagree" if timed >= _LEAST_TIMED else f"LLVM timed {100 * timed:.0f} % of it only"
        verdict = {-1: "both see a gain", 0: "neither sees a change", 1: "both see a loss"}[signs[0]]
        figures = f"{changes[0]:+.1f} % cycles by our model, {changes[1]:+.1f} % by LLVM's"
        found.append((f"{name}: {figures}: {verdict if agreed else no}", agreed))
    return found


def timed_blocks(program: Program, pipeline: Pipeline, command: Sequence[str]) -> Timed:
    """What a run of a program executes.

    Args:
        command: llvm-mca and its options for the core.
    """
    with simulator(program) as simulation:
        firmware = simulation.firmware(hooked=False)
        types = [(buffer.type.shape, buffer.type.dtype.numpy) for buffer in program.inputs]
        (layers,) = firmware.count([random_inputs(types, 0)], edges=False)
        image = disassemble(firmware.elf)
    counts = {key: figures for layer in layers for key, figures in layer.blocks.items()}
    blocks = [(image.block(key[0], number), count) for key, (number, count, _) in counts.items()]
    timed = [(block, count, cycles_behind(pipeline, [block, block], block)) for block, count in blocks]
    total = sum(count * cycles for _, count, cycles in timed)
    hot = [each for each in timed if each[1] * each[2] >= _LEAST_SHARE * total]
    return Timed(
        tuple(
            Block(block, count, cycles, llvm_cycles(command, block))
            for block, count, cycles in sorted(hot, key=lambda each: -each[1] * each[2])
        ),
        total - sum(count * cycles for _, count, cycles in hot),
    )


def llvm_flags(name: str, cpu_flags: Sequence[str]) -> list[str]:
    """Options for a target's core.

    Raises:
        ValueError: neither the target's flags nor its name say which core that is, or LLVM has no word for
            what it goes without.
    """
    given = next((flag.removeprefix("-mcpu=") for flag in cpu_flags if flag.startswith("-mcpu=")), "")
    cpu, *without = given.split("+")
    if not cpu:
        named = _CORE.match(name)
        if named is None:
            raise ValueError(f"{name}: LLVM must know the core; neither the name nor an -mcpu says which one")
        cpu = named[0]
    unknown = [each for each in without if each not in _WITHOUT]
    if unknown:
        raise ValueError(f"{name}: LLVM has no {cpu} with {', '.join(unknown)}")
    triple = _TRIPLES.get(cpu, "thumbv7em-none-eabi")
    attributes = ",".join(dict.fromkeys(_WITHOUT[each] for each in without))
    return [f"-mtriple={triple}", f"-mcpu={cpu}", *([f"-mattr={attributes}"] if attributes else [])]


def llvm_cycles(command: Sequence[str], block: Sequence[Instruction]) -> float | None:
    """Cycles of a block that follows itself, as LLVM models the core; None: it does not take the block."""
    full = [*command, f"-iterations={_ITERATIONS}"]
    done = subprocess.run(full, input=assembly(block), capture_output=True, text=True, timeout=_SECONDS)
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
