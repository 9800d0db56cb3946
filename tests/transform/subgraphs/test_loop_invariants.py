from __future__ import annotations

from microfold.transform.subgraphs.loop_invariants import loop_invariants
from tests.transform.check import check_declined, check_rewrite

TEST = """
  subgraph @test = graph @test(%i: int32[], %v: int32[]) -> (%less) {
    %less: bool[] = compare(%i, %v) {relation="less"}
  }"""
STEP = """
  subgraph @step = graph @step(%i: int32[], %v: int32[]) -> (%j, %v) {
    %one = constant int32[] [1]
    %j: int32[] = add(%i, %one)
  }
}
"""


def test_results_and_constants() -> None:
    check_rewrite(
        loop_invariants,
        """
graph @g(%x: int32[]) -> (%y, %w) {
  %five = constant int32[] [5]
  %y: int32[], %w: int32[] = while(%x, %five) {condition="test", body="step"}"""
        + TEST
        + STEP,
        """
graph @g(%x: int32[]) -> (%y, %five) {
  %five = constant int32[] [5]
  %y: int32[], %w: int32[] = while(%x, %five) {condition="test", body="step"}
  subgraph @test = graph @test(%i: int32[], %v: int32[]) -> (%less) {
    %v#1 = constant int32[] [5]
    %less: bool[] = compare(%i, %v#1) {relation="less"}
  }"""
        + STEP,
    )


def test_what_changes_stays() -> None:
    check_declined(
        loop_invariants,
        """
graph @g(%x: int32[]) -> (%y, %w) {
  %five = constant int32[] [5]
  %y: int32[], %w: int32[] = while(%x, %five) {condition="test", body="step"}"""
        + TEST
        + STEP.replace("(%j, %v)", "(%j, %j)"),
        "each iteration computes all values that it carries",
    )


def test_loops_of_one_body_with_different_constants() -> None:
    """The body keeps its parameter."""
    check_declined(
        loop_invariants,
        """
graph @g(%x: int32[]) -> (%a, %b) {
  %five = constant int32[] [5]
  %nine = constant int32[] [9]
  %a: int32[], %v: int32[] = while(%x, %five) {condition="test", body="step"}
  %b: int32[], %w: int32[] = while(%x, %nine) {condition="test", body="step"}"""
        + TEST
        + STEP,
        "%v is not the same constant for all loops",
    )
