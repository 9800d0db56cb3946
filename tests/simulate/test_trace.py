"""Executed blocks and the cycles that a timing table gives for them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from microfold.simulate.boards import find
from microfold.simulate.run import Simulator
from microfold.simulate.thumb import InstructionKind, ThumbInstruction, instructions
from microfold.simulate.toolchain import ARM_COMPILER, find_tool
from microfold.simulate.trace import block_cycles, least_cycles
from microfold.target import load
from microfold.target.timing import CoreTiming
from tests.needs import CROSS_TOOLS, need_tools

from .conftest import LENGTH, toy

TIMING = CoreTiming("a manual")
M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
INPUT = np.arange(LENGTH, dtype=np.int8)

# Assembly, what it is, and the cycles of the whole block.
CASES = {
    "adds r0, r1, r2": ([InstructionKind.ALU], 1),
    "muls r0, r1": ([InstructionKind.MULTIPLY], 1),
    "mla r0, r1, r2, r3": ([InstructionKind.MULTIPLY_ADD], 1),
    "smlad r0, r1, r2, r0": ([InstructionKind.MULTIPLY_ADD], 1),
    "smuad r0, r1, r2": ([InstructionKind.MULTIPLY], 1),
    "smull r0, r1, r2, r3": ([InstructionKind.MULTIPLY_LONG], 1),
    "udiv r0, r1, r2": ([InstructionKind.DIVIDE], 7),
    "ldr r0, [r1]": ([InstructionKind.LOAD], 2),
    "ldrsb.w r0, [r1, #1]": ([InstructionKind.LOAD], 2),
    "ldr r0, [r1]; ldr r2, [r1, #4]; ldr.w r8, [r1, #8]": ([InstructionKind.LOAD] * 3, 4),
    "ldr r0, [r1]; ldr r2, [r0]": ([InstructionKind.LOAD] * 2, 4),
    "ldr r0, [r1]; adds r3, #1; ldr r2, [r1]": (
        [InstructionKind.LOAD, InstructionKind.ALU, InstructionKind.LOAD],
        5,
    ),
    "str r0, [r1]": ([InstructionKind.STORE], 1),
    "strb r0, [r1, r2]": ([InstructionKind.STORE_INDEXED], 2),
    "strb.w r0, [r1, r2, lsl #1]": ([InstructionKind.STORE_INDEXED], 2),
    "strb.w r0, [r1], #1": ([InstructionKind.STORE], 1),
    "ldrd r0, r1, [r2], #8": ([InstructionKind.MULTIPLE], 3),
    "ldmia r0!, {r1, r2, r3, r4}": ([InstructionKind.MULTIPLE], 5),
    "push {r4, r5, r6, lr}": ([InstructionKind.MULTIPLE], 5),
    "stmdb sp!, {r4, r5, r6, r7, r8, r9, r10, r11, lr}": ([InstructionKind.MULTIPLE], 10),
    "cmp r0, r1; bne .": ([InstructionKind.ALU, InstructionKind.BRANCH], 2),
    "bne.w .": ([InstructionKind.BRANCH], 1),
    "bl .": ([InstructionKind.BRANCH], 1),
    "cbz r0, 1f; nop; 1:": ([InstructionKind.BRANCH, InstructionKind.ALU], 2),
    "dmb": ([InstructionKind.ALU], 1),
    "vldr s0, [r0]": ([InstructionKind.MULTIPLE], 2),
    "vldmia r0!, {s0-s3}": ([InstructionKind.MULTIPLE], 5),
    "vadd.f32 s0, s1, s2": ([InstructionKind.FLOAT], 1),
    "vmla.f32 s0, s1, s2": ([InstructionKind.FLOAT_MULTIPLY_ADD], 3),
    "vfma.f32 s0, s1, s2": ([InstructionKind.FLOAT_MULTIPLY_ADD], 3),
    "vdiv.f32 s0, s1, s2": ([InstructionKind.FLOAT_DIVIDE], 14),
    "vsqrt.f32 s0, s1": ([InstructionKind.FLOAT_DIVIDE], 14),
    "vmov r0, s0": ([InstructionKind.FLOAT], 1),
    "vcvt.f32.s32 s0, s0": ([InstructionKind.FLOAT], 1),
}

# Cycles by other cores' manuals: M3's of Arm DDI 0337, 3.3.1, M0+'s of Arm DDI 0484, 3.3.
MANUALS = {
    "cortex-m3": {
        "adds r0, r1, r2": 1,
        "muls r0, r1": 1,
        "mla r0, r1, r2, r3": 2,
        "umull r0, r1, r2, r3": 5,  # 3 to 5, by the operands
        "smlal r0, r1, r2, r3": 5,  # 4 to 7
        "udiv r0, r1, r2": 7,  # 2 to 12
        "ldr r0, [r1]": 2,
        "ldr r0, [r1]; ldr r2, [r1, #4]; ldr r3, [r1, #8]": 4,  # in a row, each but the first takes one
        "ldr r0, [r1]; ldr r2, [r0]": 4,  # but not if one waits for the other
        "str r0, [r1]": 1,  # always, with an immediate offset
        "ldmia r0!, {r1, r2, r3, r4}": 5,  # one more than registers
        "push {r4, r5, r6, lr}": 5,
        "ldrd r0, r1, [r2]": 3,
        "cmp r0, r1; bne .": 2,  # where it is not taken
    },
    "cortex-m0plus": {
        "adds r0, r1, r2": 1,
        "muls r0, r1": 1,  # the fast multiplier
        "lsls r0, r1, #2; mov r8, r0": 2,
        "ldr r0, [r1]": 2,
        "ldr r0, [r1]; ldr r2, [r1, #4]": 4,  # nothing overlaps
        "ldrb r0, [r1, r2]": 2,
        "str r0, [r1]": 2,
        "strb r0, [r1, r2]": 2,
        "ldmia r0!, {r1, r2, r3, r4}": 5,
        "stmia r0!, {r1, r2}": 3,
        "push {r4, r5, r6, lr}": 5,
        "cmp r0, r1; bne .": 2,
    },
}
# What a branch takes that is taken: M3's refills its pipeline in 1 to 3 cycles.
TAKEN = {"cortex-m3": 3, "cortex-m0plus": 2}


@pytest.fixture(autouse=True)
def tools():
    need_tools(*CROSS_TOOLS, "arm-none-eabi-objcopy", "cc")


def assemble(text: str, folder: Path) -> bytes:
    source = folder / "code.s"
    source.write_text(".syntax unified\n.thumb\n" + text.replace(";", "\n") + "\n")
    subprocess.run([find_tool(ARM_COMPILER), *M4, "-c", source, "-o", folder / "code.o"], check=True)
    objcopy = find_tool("arm-none-eabi-objcopy")
    subprocess.run(
        [objcopy, "-O", "binary", "-j", ".text", folder / "code.o", folder / "code.bin"], check=True
    )
    return (folder / "code.bin").read_bytes()


def test_kinds_and_cycles_of_instructions(tmp_path: Path):
    for text, (kinds, cycles) in CASES.items():
        block = list(instructions(assemble(text, tmp_path)))
        assert [instruction.kind for instruction in block] == kinds, text
        assert block_cycles(block, TIMING) == cycles, text


@pytest.mark.parametrize("core", MANUALS)
def test_cycles_of_manuals(core: str, tmp_path: Path):
    timing = load(core).timing
    assert timing is not None
    blocks = {text: instructions(assemble(text, tmp_path)) for text in MANUALS[core]}
    assert {text: block_cycles(block, timing) for text, block in blocks.items()} == MANUALS[core]
    assert timing.branch + timing.taken == TAKEN[core]


def test_at_least_transfers_are_in_a_row():
    loads = [ThumbInstruction(InstructionKind.LOAD, target=n, base=n) for n in range(3)]
    assert block_cycles(loads, TIMING) == 4
    assert least_cycles(loads, TIMING) == 3
    assert least_cycles([ThumbInstruction(InstructionKind.STORE_INDEXED)], TIMING) == 1
    assert least_cycles([ThumbInstruction(InstructionKind.MULTIPLE, words=4)], TIMING) == 5


def test_a_dependent_load_waits():
    load = ThumbInstruction(InstructionKind.LOAD, target=0, base=1)
    assert block_cycles([load, ThumbInstruction(InstructionKind.LOAD, target=2, base=0)], TIMING) == 4


LOOP = '{ uint32_t n = %du; __asm__ volatile("1: subs %%0, #1\\n\\tbne 1b" : "+l"(n) : : "cc"); }'


@pytest.mark.parametrize("rounds", [10, 1000])
def test_counts_and_taken_branches_of_a_loop(rounds: int):
    with Simulator(toy(LOOP % rounds), find("mps2-an386"), M4) as simulator:
        result = simulator.run([(INPUT,)] * 2)
        traces = simulator.firmware(hooked=False).trace([(INPUT,)] * 2, TIMING)
        assert tuple(sum(trace.instructions) for trace in traces) == result.instructions
        more = Simulator(toy(LOOP % (rounds + 1)), find("mps2-an386"), M4)
        with more:
            longer = more.firmware(hooked=False).trace([(INPUT,)], TIMING)
    # One more round: two instructions, and a branch that is taken.
    assert sum(longer[0].cycles) - sum(traces[0].cycles) == 4


@pytest.mark.parametrize(
    ("core", "cycles"),
    [("cortex-m7", 1), ("cortex-m33", 2), ("cortex-m55", 3)],
    ids=["both at once", "a taken branch is a cycle more", "two cycles more"],
)
def test_a_loop_on_a_pipeline(core: str, cycles: int):
    target = load(core)
    assert target.pipeline is not None
    totals: list[int] = []
    for rounds in (500, 501):
        with Simulator(toy(LOOP % rounds), find(target.board), target.cpu_flags) as simulator:
            (trace,) = simulator.firmware(hooked=False).trace([(INPUT,)], target.pipeline)
        totals.append(sum(trace.cycles))
    assert totals[1] - totals[0] == cycles


def test_layers():
    with Simulator(toy(LOOP % 500), find("mps2-an386"), M4) as simulator:
        result = simulator.run([(INPUT,)])
        cycles = simulator.trace([(INPUT,)], TIMING)
    assert len(cycles.layers[0]) == len(result.layer_instructions[0])
    assert abs(cycles.total[0] - sum(cycles.layers[0])) < 50  # the calls of the hook
    # Two instructions a round: the branches that are taken are what the rest waits for.
    assert cycles.least[0] >= 1000
    assert cycles.total[0] - cycles.least[0] >= 500 * TIMING.taken
    assert abs(cycles.least[0] - sum(cycles.least_of_layers[0])) < 50
