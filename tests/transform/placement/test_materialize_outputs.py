from __future__ import annotations

from microfold.transform.placement.materialize_outputs import materialize_outputs
from tests.transform.check import check_declined, check_rewrite


def test_inputs_constants_duplicates_and_views() -> None:
    check_rewrite(
        materialize_outputs,
        """
        graph @g(%x: float32[4]) -> (%x, %k, %v, %y, %y, %w) {
          %v: float32[2,2] = reshape(%x) {shape=(2, 2)}
          %y: float32[4] = clip(%x) {minimum=0.0, maximum=6.0}
          %w: float32[2,2] = reshape(%y) {shape=(2, 2)}
          %k = constant float32[1] [1.0]
        }
        """,
        """
        graph @g(%x: float32[4]) -> (%x#1, %k#1, %v#1, %y, %y#1, %w#1) {
          %v: float32[2,2] = reshape(%x) {shape=(2, 2)}
          %y: float32[4] = clip(%x) {minimum=0.0, maximum=6.0}
          %w: float32[2,2] = reshape(%y) {shape=(2, 2)}
          %x#1: float32[4] = copy(%x)
          %k = constant float32[1] [1.0]
          %k#1: float32[1] = copy(%k)
          %v#1: float32[2,2] = copy(%v)
          %y#1: float32[4] = copy(%y)
          %w#1: float32[2,2] = copy(%w)
        }
        """,
    )


def test_states() -> None:
    # A delay line: each state's next is another state, an input, or also an output.
    check_rewrite(
        materialize_outputs,
        """
        graph @g(%x: float32[1]) -> (%y) {
          state %a: float32[1] initial [1.0] next %x
          state %b: float32[1] initial [2.0] next %a
          state %c: float32[1] initial [3.0] next %y
          state %fixed: float32[1] initial [4.0] next %fixed
          %y: float32[1] = add(%b, %fixed)
        }
        """,
        """
        graph @g(%x: float32[1]) -> (%y) {
          state %a: float32[1] initial [1.0] next %x#1
          state %b: float32[1] initial [2.0] next %a#1
          state %c: float32[1] initial [3.0] next %y#1
          state %fixed: float32[1] initial [4.0] next %fixed
          %y: float32[1] = add(%b, %fixed)
          %x#1: float32[1] = copy(%x)
          %a#1: float32[1] = copy(%a)
          %y#1: float32[1] = copy(%y)
        }
        """,
    )


def test_view_of_a_computed_value_needs_none() -> None:
    check_declined(
        materialize_outputs,
        """
        graph @g(%x: float32[4]) -> (%w, %z) {
          %y: float32[4] = clip(%x) {minimum=0.0, maximum=6.0}
          %w: float32[2,2] = reshape(%y) {shape=(2, 2)}
          %z: float32[4] = add(%y, %x)
        }
        """,
    )
