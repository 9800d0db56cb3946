"""What pipelines take at least: of some mixtures by hand, and never more than what an order of them takes."""

from __future__ import annotations

import random

import pytest

from microfold.simulate.pipeline.limit import least_cycles
from microfold.simulate.pipeline.scoreboard import Scoreboard
from microfold.target import load

from .test_scoreboard import LOOPS, assembled

BY_HAND = [
    ("cortex-m7", "add.w r0, r1, r2; add.w r3, r4, r5; ldr.w r0, [r1]", 2),  # two in a cycle, rounded up
    ("cortex-m7", "smlad r0, r1, r2, r0; smlad r3, r1, r2, r3; add.w r4, r5, r6", 2),  # one multiplier
    ("cortex-m7", "ldrd r0, r2, [r1]; add.w r3, r4, r5; add.w r6, r4, r5", 2),  # nothing beside LDRD
    ("cortex-m7", "ldr.w r0, [r0]; ldr.w r1, [r0]", 1),  # the second one waits, which is left out
    ("cortex-m33", "add.w r0, r1, r2; ldr.w r3, [r4]", 2),  # one in a cycle
    ("cortex-m33", "ldm.w r0, {r1, r2, r3, r4, r5}", 5),
    ("cortex-m55", "vmladava.s8 r2, q0, q1; vmladava.s8 r4, q0, q1", 4),  # the multiplier
    ("cortex-m55", "vldrb.u8 q0, [r0]; vmladava.s8 r2, q1, q2", 2),  # two units side by side
    ("cortex-m55", "adds r0, #1; nop; add.w r1, r2, r3", 2),  # halfwords are issued together
    ("cortex-m55", "adds r0, #1; add.w r1, r2, r3", 2),  # and words are not
]


@pytest.mark.parametrize(("core", "text", "cycles"), BY_HAND, ids=[text for _, text, _ in BY_HAND])
def test_by_hand(core: str, text: str, cycles: int) -> None:
    pipeline = load(core).pipeline
    assert pipeline is not None
    assert least_cycles(pipeline, [(each, 1) for each in assembled(text)]) == cycles
    assert least_cycles(pipeline, [(each, 10) for each in assembled(text)]) in range(
        10 * cycles - 5, 10 * cycles + 1
    )


@pytest.mark.parametrize("core", ["cortex-m7", "cortex-m33", "cortex-m55", "cortex-m85"])
def test_no_order_takes_less(core: str) -> None:
    pipeline = load(core).pipeline
    assert pipeline is not None
    some = [each for of, text, _ in LOOPS if of == core for each in assembled(text)]
    draw = random.Random(1)
    last = max(rules.unit_busy for rules in pipeline.issues.values()) - 1  # until all units are free
    for _ in range(300):
        sequence = draw.choices(some, k=draw.randint(1, 60))
        board = Scoreboard(pipeline)
        for instruction in sequence:
            board.issue(instruction)
        assert least_cycles(pipeline, [(each, 1) for each in sequence]) <= board.clock + last


def test_nothing_takes_nothing() -> None:
    pipeline = load("cortex-m7").pipeline
    assert pipeline is not None
    assert least_cycles(pipeline, []) == 0
