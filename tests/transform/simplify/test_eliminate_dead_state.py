from __future__ import annotations

from microfold.transform.simplify.eliminate_dead_state import eliminate_dead_state
from tests.transform.check import check_declined, check_rewrite


def test_states_that_never_change() -> None:
    """Also where a constant is assigned that the state holds from the beginning."""
    check_rewrite(
        eliminate_dead_state,
        """
        graph @g(%x: float32[2]) -> (%z, %s) {
          state %s: float32[2] initial [1.0, 2.0] next %s
          state %t: float32[] initial [3.0] next %c
          %y: float32[2] = add(%x, %s)
          %z: float32[2] = add(%y, %t)
          %c = constant float32[] [3.0]
        }
        """,
        """
        graph @g(%x: float32[2]) -> (%z, %s) {
          %s = constant float32[2] [1.0, 2.0]
          %y: float32[2] = add(%x, %s)
          %t = constant float32[] [3.0]
          %z: float32[2] = add(%y, %t)
        }
        """,
    )


def test_states_that_are_always_equal() -> None:
    """%v and %u are followed by equal states."""
    check_rewrite(
        eliminate_dead_state,
        """
        graph @g(%x: float32[2]) -> (%z) {
          state %u: float32[2] initial [1.0, 2.0] next %s
          state %v: float32[2] initial [1.0, 2.0] next %t
          state %s: float32[2] initial [1.0, 2.0] next %x
          state %t: float32[2] initial [1.0, 2.0] next %x
          %y: float32[2] = add(%s, %t)
          %w: float32[2] = add(%y, %u)
          %z: float32[2] = add(%w, %v)
        }
        """,
        """
        graph @g(%x: float32[2]) -> (%z) {
          state %u: float32[2] initial [1.0, 2.0] next %s
          state %s: float32[2] initial [1.0, 2.0] next %x
          %y: float32[2] = add(%s, %s)
          %w: float32[2] = add(%y, %u)
          %z: float32[2] = add(%w, %u)
        }
        """,
    )


def test_states_that_change() -> None:
    check_declined(
        eliminate_dead_state,
        """
        graph @g(%x: float32[2]) -> (%s, %t, %u) {
          state %s: float32[2] initial [1.0, 2.0] next %x
          state %t: float32[2] initial [1.0, -2.0] next %x
          state %u: float32[2] initial [0.0, 2.0] next %c
          %c = constant float32[2] [-0.0, 2.0]
        }
        """,
        "its content changes",
    )
