from __future__ import annotations

from microfold.transform.subgraphs.remove_unused_parameters import remove_unused_parameters
from tests.transform.check import check_declined, check_rewrite


def test_calls_and_conditions() -> None:
    """Both branches of a condition, and every caller of a function, lose what neither branch reads."""
    check_rewrite(
        remove_unused_parameters,
        """
        graph @g(%x: float32[2], %c: bool[], %z: float32[2]) -> (%y, %w, %v) {
          %y: float32[2] = if(%c, %z, %x, %z) {then="f", otherwise="h"}
          %w: float32[2] = call(%z, %x, %z) {body="f", composite="", compiler="", stateful=false}
          %v: float32[2] = call(%z) {body="k", composite="", compiler="", stateful=false}
          subgraph @f = graph @f(%o: float32[2], %p: float32[2], %q: float32[2]) -> (%p) {
          }
          subgraph @h = graph @h(%o: float32[2], %p: float32[2], %q: float32[2]) -> (%r) {
            %r: float32[2] = add(%p, %q)
          }
          subgraph @k = graph @k(%o: float32[2]) -> (%r) {
            %r: float32[2] = call(%o, %o) {body="m", composite="", compiler="", stateful=false}
            subgraph @m = graph @m(%p: float32[2], %q: float32[2]) -> (%c) {
              %c = constant float32[2] [1.0, 2.0]
            }
          }
        }
        """,
        """
        graph @g(%x: float32[2], %c: bool[], %z: float32[2]) -> (%y, %w, %v) {
          %y: float32[2] = if(%c, %x, %z) {then="f", otherwise="h"}
          %w: float32[2] = call(%x, %z) {body="f", composite="", compiler="", stateful=false}
          %v: float32[2] = call() {body="k", composite="", compiler="", stateful=false}
          subgraph @f = graph @f(%p: float32[2], %q: float32[2]) -> (%p) {
          }
          subgraph @h = graph @h(%p: float32[2], %q: float32[2]) -> (%r) {
            %r: float32[2] = add(%p, %q)
          }
          subgraph @k = graph @k() -> (%r) {
            %r: float32[2] = call() {body="m", composite="", compiler="", stateful=false}
            subgraph @m = graph @m() -> (%c) {
              %c = constant float32[2] [1.0, 2.0]
            }
          }
        }
        """,
    )


def test_what_stays() -> None:
    check_declined(
        remove_unused_parameters,
        """
        graph @g(%x: float32[2], %c: bool[]) -> (%y, %w) {
          %y: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=true}
          %d: bool[], %w: float32[2] = while(%c, %x) {condition="test", body="step"}
          subgraph @f = graph @f(%p: float32[2]) -> (%s) {
            state %s: float32[2] initial [0.0, 0.0] next %p
          }
          subgraph @test = graph @test(%p: bool[], %q: float32[2]) -> (%p) {
          }
          subgraph @step = graph @step(%p: bool[], %q: float32[2]) -> (%f, %q) {
            %f = constant bool[] [false]
          }
        }
        """,
        "a loop carries its parameters",
    )
