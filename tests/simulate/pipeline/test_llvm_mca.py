"""Blocks as LLVM's assembler takes them."""

from __future__ import annotations

from tests.tools.compare_llvm_mca import assembly

from .test_scoreboard import assembled


def test_jumps_and_the_program_counter_are_left_out() -> None:
    block = assembled(
        "ldr.w r0, [r1, #4]; ldr.w r2, [r1, #-4]; ldr.w r3, [pc, #8]; smlad r0, r1, r2, r0; bne.n 40"
    )
    assert assembly(block).splitlines() == [
        ".syntax unified",
        ".thumb",
        "ldr.w r0, [r1, #4]",
        "ldr r2, [r1, #-4]",
        "smlad r0, r1, r2, r0",
    ]
