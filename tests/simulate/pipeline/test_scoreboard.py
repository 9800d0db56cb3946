"""Microbenchmarks of pipelines: short loops, and the cycles that a round of them takes.

Those of M7, M33 and M85 are what "pipeline cycle test" (github.com/jnk0le/random) measured on silicon, in its
words: cortex_m7.md, cortex_m33.md, cortex_m85.md. Those of M55 follow from LLVM's ARMScheduleM55.td.
"""

from __future__ import annotations

import pytest

from microfold.simulate.pipeline.decode import decode
from microfold.simulate.pipeline.instruction import Instruction
from microfold.simulate.pipeline.scoreboard import Scoreboard
from microfold.target import load

# Rounds that are left out at the beginning, and those that are counted.
WARM, COUNTED = 8, 40

M7 = {
    "add.w r0, r1, r2; add.w r3, r4, r5": 1,  # issued together
    "add.w r0, r0, r1": 1,  # an early result is there in the next cycle
    "add.w r0, r0, r1; eor.w r2, r2, r0": 1,  # and in the same one for the late unit
    "add.w r0, r1, r0, lsl #1": 2,  # the shifted operand is read early, and comes late
    "add.w r0, r1, r2, lsl #1; add.w r3, r1, r2, lsl #1": 2,
    "sxtb16.w r0, r1; sxtb16.w r2, r3": 2,
    "sxtb16.w r0, r1; add.w r2, r3, r4": 1,
    "smlad r0, r1, r2, r0; smlad r3, r1, r2, r3": 2,  # one product a cycle, chained on its accumulator
    "smlad r0, r1, r2, r0": 1,
    "smlad r0, r1, r2, r0; str.w r3, [r4]": 2,
    "smlad r0, r1, r2, r0; ldr.w r3, [r4]": 1,
    "mul r0, r0, r1": 2,  # one cycle more of latency
    "ldr.w r0, [r1]; ldr.w r2, [r1, #4]": 1,  # an even and an odd word
    "ldr.w r0, [r1]; ldr.w r2, [r1, #8]": 2,
    "ldrd r0, r2, [r1]; add.w r3, r4, r5": 2,  # alone
    "ldr.w r0, [r0]": 2,
    "ldrb.w r0, [r1]; add.w r2, r0, r2; ldr.w r3, [r3]": 3,  # a byte comes a cycle later than a word
    "ldr.w r0, [r1]; add.w r2, r0, r2; ldr.w r3, [r3]": 2,
    "ldm.w r1, {r2, r3, r4, r5}": 2,  # half as many cycles as registers
    "vmov r0, s0; vmov r1, s1": 2,
    "vldr s0, [r0]; add.w r1, r2, r3": 1,
    "str.w r0, [r1]; str.w r2, [r3]": 2,
    "ldr.w r0, [r1]; str.w r0, [r2]": 1,  # what is stored may come in the same cycle
}
_PRODUCTS = [f"vmla.f32 s{n}, s14, s15" for n in range(4)]
_SUMS = "; ".join(_PRODUCTS)
M7_FLOATS = {
    "vadd.f32 s0, s1, s2; vadd.f32 s3, s1, s2": 2,  # not issued together
    "vadd.f32 s0, s0, s1": 3,
    "vmul.f32 s0, s0, s1": 3,
    "vldr s0, [r0]; vmul.f32 s0, s0, s1; vstr s0, [r0]": 2,  # a cycle from load to product, and to the store
    "vmov.f32 s0, s0": 3,
    "vmov s0, r0; vmov s1, s0; vmov s0, s1": 7,  # 3 cycles from one register to another
    "vdiv.f32 s0, s1, s2; add.w r0, r1, r2": 16,  # nothing else meanwhile
    "vsqrt.f32 s0, s1; add.w r0, r1, r2": 14,
    # Sums of products: one in each cycle, if a sum has its next one three cycles later.
    "vmla.f32 s0, s14, s15": 3,
    "; ".join(_PRODUCTS[:2]): 3,
    "; ".join(_PRODUCTS[:3]): 3,
    _SUMS: 4,
    "vmla.f32 s0, s0, s1": 6,  # twice as late as a factor
    "vmul.f32 s0, s1, s2; vmla.f32 s3, s0, s0; vmla.f32 s4, s3, s3; vmov.f32 s1, s4": 18,
    "vldr s0, [r0]; vmla.f32 s0, s1, s2; vstr s0, [r0]": 6,  # 2 cycles from the load, 4 to the store
    # No load or store beside a product.
    "; ".join(f"{product}; vldr s{4 + n}, [r0, #{4 * n}]" for n, product in enumerate(_PRODUCTS)): 8,
    "; ".join(f"{product}; vstr s{4 + n}, [r0, #{4 * n}]" for n, product in enumerate(_PRODUCTS)): 8,
    "; ".join(f"{product}; ldr.w r{4 + n}, [r0, #{4 * n}]" for n, product in enumerate(_PRODUCTS)): 4,
    # Not in the three cycles behind one.
    "vmla.f32 s0, s14, s15; vadd.f32 s1, s2, s3": 5,
    "vmla.f32 s0, s14, s15; vmul.f32 s1, s2, s3": 3,
    f"{_SUMS}; vldm r0, {{s4, s5, s6, s7}}": 9,
    f"{_SUMS}; vldr d4, [r0]": 8,
    f"{_SUMS}; vmov.f32 s4, #1.0": 8,
    # And not second there.
    f"{_SUMS}; vldr s4, [r0]; vldr s5, [r0, #4]; vldr s6, [r0, #8]; vldr s7, [r0, #12]": 8,
    f"{_SUMS}; vldr s4, [r0]; ldr.w r1, [r0, #4]; vldr s6, [r0, #8]; ldr.w r2, [r0, #12]": 6,
    f"{_SUMS}; ldr.w r1, [r0]; vldr s5, [r0, #4]; ldr.w r2, [r0, #8]; vldr s7, [r0, #12]": 6,
}
M33 = {
    "add.w r0, r1, r2; add.w r3, r4, r5": 2,
    "ldr.w r0, [r0]": 2,
    "ldr.w r0, [r1]; add.w r2, r0, r2": 3,
    "ldr.w r0, [r1]; str.w r0, [r2]": 2,
    "smlad r0, r1, r2, r0": 1,
    "mul r0, r0, r1": 2,
    "ldr.w r0, [r1]; smlad r0, r2, r3, r0": 2,
    "add.w r0, r0, r1, lsl #2": 2,
    "sxtb16.w r0, r0": 2,
    "ubfx r0, r0, #1, #2": 1,
    "ldrd r0, r1, [r2]": 2,
    "ldm.w r0, {r1, r2, r3, r4, r5}": 5,
    "vadd.f32 s0, s0, s1": 2,
    "vmov r0, r1, s0, s1": 2,
    "vmov s0, s1, r0, r1": 1,
}
M55 = {
    "vldrb.u8 q0, [r0]; vmladava.s8 r2, q1, q2": 2,  # the units overlap
    "vmladava.s8 r2, q0, q1; vmladava.s8 r4, q0, q1": 4,
    "vadd.i32 q0, q0, q1": 2,
    "vqmovnb.s32 q0, q0": 3,
    "vmov.32 q0[2], q0[0], r2, r3; vadd.i32 q1, q1, q2": 2,
    "ldr.w r0, [r0]": 2,
    "add.w r0, r1, r2; add.w r3, r4, r5": 2,
    "adds r0, #1; nop": 1,  # halfwords
    "ldrd r0, r1, [r2]": 2,
}
M85 = {
    "adds r0, #1; adds r1, #1": 1,
    "smlad r0, r1, r2, r0; smlad r3, r1, r2, r3": 2,
    "uxtb.w r0, r1; uxtb.w r2, r3": 2,
    "add.w r0, r1, r2; vadd.i32 q0, q1, q2; add.w r3, r4, r5; vmul.i32 q3, q4, q5": 2,
    "vldrw.u32 q0, [r0]; vmladava.s8 r2, q1, q2": 2,
    "add.w r1, r2, r3; vldrw.u32 q0, [r0]": 2,  # nothing of the core in its second cycle
    "vldrw.u32 q0, [r0]; add.w r1, r2, r3; add.w r4, r2, r3": 3,
    "vldrw.u32 q0, [r0, q1]": 3,
    "ldm.w r1, {r2, r3, r4, r5}": 2,
    "ldr.w r0, [r0]": 2,  # to an address
    "ldrb.w r0, [r0]": 3,
    "ldr.w r0, [r1]; str.w r0, [r2]": 1,  # what is stored is read last
    "vadd.i32 q0, q1, q2; uxtb.w r0, r1": 2,
}
LOOPS = [
    (core, text, cycles)
    for core, table in (
        ("cortex-m7", M7),
        ("cortex-m7", M7_FLOATS),
        ("cortex-m33", M33),
        ("cortex-m55", M55),
        ("cortex-m85", M85),
    )
    for text, cycles in table.items()
]


def assembled(text: str) -> list[Instruction]:
    """The instructions of a loop's round."""
    block = []
    for number, line in enumerate(text.split(";")):
        mnemonic, _, operands = line.strip().partition(" ")
        narrow = mnemonic in ("nop", "adds")
        block.append(decode(4 * number, 2 if narrow else 4, mnemonic, operands))
    return block


def cycles_of(core: str, text: str) -> float:
    """Cycles of a round, without what closes the loop."""
    pipeline = load(core).pipeline
    assert pipeline is not None
    block = assembled(text)
    board = Scoreboard(pipeline)
    marks = []
    for _ in range(WARM + COUNTED):
        marks.append(board.clock)
        for instruction in block:
            board.issue(instruction)
    return (board.clock - marks[WARM]) / COUNTED


@pytest.mark.parametrize(
    ("core", "text", "cycles"), LOOPS, ids=[f"{core}: {text}" for core, text, _ in LOOPS]
)
def test_measured_loops(core: str, text: str, cycles: float) -> None:
    assert cycles_of(core, text) == pytest.approx(cycles, abs=0.1)
