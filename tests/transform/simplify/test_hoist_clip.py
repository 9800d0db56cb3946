"""Clips go up to the layers that run them."""

from __future__ import annotations

import pytest

from microfold.ir.text import parse
from microfold.transform.simplify.hoist_clip import hoist_clip
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

CLIP = "{minimum=0.0, maximum=6.0}"


def test_through_a_row_of_movements() -> None:
    check_rewrite(
        hoist_clip,
        f"""
        graph @g(%i: int8[2,4] q(0.1, 3), %j: int8[2,4] q(0.1, 3)) -> (%y) {{
          %a: int8[2,4] q(0.1, 3) = add(%i, %j)
          %b: int8[8] q(0.1, 3) = reshape(%a) {{shape=(8,)}}
          %c: int8[10] q(0.1, 3) = pad(%b) {{padding=((1, 1),), fill=-100.0}}
          %y: int8[10] q(0.1, 3) = clip(%c) {CLIP}
        }}
        """,
        f"""
        graph @g(%i: int8[2,4] q(0.1, 3), %j: int8[2,4] q(0.1, 3)) -> (%y) {{
          %a: int8[2,4] q(0.1, 3) = add(%i, %j)
          %a#1: int8[2,4] q(0.1, 3) = clip(%a) {CLIP}
          %b: int8[8] q(0.1, 3) = reshape(%a#1) {{shape=(8,)}}
          %y: int8[10] q(0.1, 3) = pad(%b) {{padding=((1, 1),), fill=3.0}}
        }}
        """,
    )


@pytest.mark.parametrize(
    "lines",
    [
        "%r: float32[4,4] = concatenate(%a, %k, %b) {axis=0}",
        "%c: float32[2,4] = concatenate(%a, %b) {axis=0}"
        " %r: float32[4,2] = transpose(%c) {permutation=(1, 0)}",
        "%r: float32[1,2] = strided_slice(%a) {begin=(0, 1), size=(1, 2), strides=(1, 2)}",
        "%c: float32[1,4] = clip(%a) {minimum=-1.0, maximum=1.0} %r: float32[4] = reshape(%c) {shape=(4,)}",
        "%r: float32[1,2] = gather(%a, %i) {axis=1}",
        "%r: float32[3,4] = broadcast_to(%b) {shape=(3, 4)}",
    ],
)
def test_the_meaning_stays(lines: str) -> None:
    shape = lines.rpartition("%r: float32")[2].partition(" ")[0]
    before = parse(
        f"""
        graph @g(%x: float32[1,4], %z: float32[1,4]) -> (%y) {{
          %i = constant int32[2] [3, 0]
          %k = constant float32[2,4] [-2.0, 7.0, 1.0, 0.0, 9.0, 3.0, -1.0, 2.0]
          %a: float32[1,4] = add(%x, %z)
          %b: float32[1,4] = mul(%x, %z)
          {lines}
          %y: float32{shape} = clip(%r) {CLIP}
        }}
        """
    )
    after = hoist_clip(before)
    assert after.nodes[-1].op.name != "clip"
    assert_same_meaning(before, after)
    assert hoist_clip(after) is after


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("%r: float32[4] = reshape(%x) {shape=(4,)}", "no layer that takes a clip computes %x"),
        ("%t: float32[1,4] = tanh(%x) %r: float32[4] = reshape(%t) {shape=(4,)}", "computes %t"),
        ("%r: float32[8] = concatenate(%x, %a) {axis=1}", "no layer that takes a clip computes %x"),
        ("%r: float32[4] = reshape(%a) {shape=(4,)} %t: float32[4] = tanh(%r)", "%r has other readers"),
        ("%r: float32[4] = reshape(%a) {shape=(4,)} %t: float32[1,4] = tanh(%a)", "%a has other readers"),
        ("%r: float32[1,4] = add(%a, %a)", ""),
    ],
)
def test_declined(lines: str, reason: str) -> None:
    lines = lines.replace("float32[8]", "float32[1,8]")
    shape = lines.rpartition("%r: float32")[2].partition(" ")[0]
    others = ", %t" if "%t" in lines and "reshape(%t)" not in lines else ""
    check_declined(
        hoist_clip,
        f"""
        graph @g(%x: float32[1,4], %z: float32[1,4]) -> (%y{others}) {{
          %a: float32[1,4] = add(%x, %z)
          {lines}
          %y: float32{shape} = clip(%r) {CLIP}
        }}
        """,
        reason,
    )
