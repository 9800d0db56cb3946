"""Graphs with loops and branches that stay."""

from __future__ import annotations

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.ir.graph import Graph
from microfold.ir.text import parse

# Two values that change places, one more that is only read: no part can be computed in place.
SWAP = """
graph @swap(%x: int32[3], %y: int32[3], %k: int32[3]) -> (%u, %v) {
  %zero = constant int32[] [0]
  %i: int32[], %u: int32[3], %v: int32[3], %w: int32[3] = while(%zero, %x, %y, %k) {condition="test", body="step"}
  subgraph @test = graph @test(%i: int32[], %a: int32[3], %b: int32[3], %c: int32[3]) -> (%less) {
    %five = constant int32[] [5]
    %less: bool[] = compare(%i, %five) {relation="less"}
  }
  subgraph @step = graph @step(%i: int32[], %a: int32[3], %b: int32[3], %c: int32[3]) -> (%j, %b1, %a, %c) {
    %one = constant int32[] [1]
    %j: int32[] = add(%i, %one)
    %b1: int32[3] = add(%b, %c)
  }
}
"""  # noqa: E501

# A loop that begins twice as one value, which is read again behind it.
AGAIN = """
graph @again(%x: int32[3]) -> (%z, %v) {
  %zero = constant int32[] [0]
  %t: int32[3] = add(%x, %x)
  %s: int32[3] = mul(%x, %x)
  %i: int32[], %u: int32[3], %v: int32[3], %w: int32[3] = while(%zero, %t, %t, %s) {condition="test", body="step"}
  %r: int32[3] = add(%u, %w)
  %z: int32[3] = add(%t, %r)
  subgraph @test = graph @test(%i: int32[], %a: int32[3], %b: int32[3], %c: int32[3]) -> (%less) {
    %five = constant int32[] [5]
    %less: bool[] = compare(%i, %five) {relation="less"}
  }
  subgraph @step = graph @step(%i: int32[], %a: int32[3], %b: int32[3], %c: int32[3]) -> (%j, %a1, %b1, %c1) {
    %one = constant int32[] [1]
    %j: int32[] = add(%i, %one)
    %a1: int32[3] = add(%a, %c)
    %b1: int32[3] = add(%b, %a)
    %c1: int32[3] = mul(%c, %b1)
  }
}
"""  # noqa: E501

# As often as an input says, four times at most; the state counts.
BOUNDED = """
graph @bounded(%n: int32[]) -> (%total) {
  state %s: int32[] initial [10] next %total
  %four = constant int32[] [4]
  %limit: int32[] = minimum(%n, %four)
  %zero = constant int32[] [0]
  %i: int32[], %total: int32[], %l: int32[] = while(%zero, %s, %limit) {condition="test", body="step"}
  subgraph @test = graph @test(%i: int32[], %s: int32[], %l: int32[]) -> (%less) {
    %less: bool[] = compare(%l, %i) {relation="greater"}
  }
  subgraph @step = graph @step(%i: int32[], %s: int32[], %l: int32[]) -> (%j, %t, %l) {
    %one = constant int32[] [1]
    %j: int32[] = add(%one, %i)
    %t: int32[] = add(%s, %j)
  }
}
"""

# As often as an input says.
UNBOUNDED = BOUNDED.replace("@bounded", "@unbounded").replace("minimum(%n, %four)", "reshape(%n) {shape=()}")

# One of two products, or none of them: the condition is an input.
BRANCH = """
graph @branch(%c: bool[1], %x: float32[1,4]) -> (%y, %v) {
  %two = constant float32[1,4] [2.0, 2.0, 2.0, 2.0]
  %y: float32[1,4], %v: float32[1,4] = if(%c, %x, %two) {then="f", otherwise="h"}
  subgraph @f = graph @f(%p: float32[1,4], %t: float32[1,4]) -> (%q, %p) {
    %w = constant float32[4,4] [1.0, 2.0, 3.0, 4.0, -1.0, 2.0, 3.0, 4.0, 1.0, 2.0, -3.0, 4.0, 1.0, 2.0, 3.0, 4.0]
    %q: float32[1,4] = fully_connected(%p, %w)
  }
  subgraph @h = graph @h(%p: float32[1,4], %t: float32[1,4]) -> (%r, %r) {
    %r: float32[1,4] = mul(%p, %t)
  }
}
"""  # noqa: E501


def swap() -> Graph:
    return parse(SWAP)


def again() -> Graph:
    return parse(AGAIN)


def bounded() -> Graph:
    return parse(BOUNDED)


def unbounded() -> Graph:
    return parse(UNBOUNDED)


def branch() -> Graph:
    return parse(BRANCH)
