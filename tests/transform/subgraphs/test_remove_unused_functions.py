from __future__ import annotations

from microfold.transform.subgraphs.remove_unused_functions import remove_unused_functions
from tests.transform.check import check_declined, check_rewrite


def test_what_nothing_runs() -> None:
    """A function that only an unused one runs goes with it."""
    check_rewrite(
        remove_unused_functions,
        """
        graph @g(%x: float32[2]) -> (%y) {
          %y: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=false}
          subgraph @f = graph @f(%p: float32[2]) -> (%p) {
            subgraph @inner = graph @inner(%p: float32[2]) -> (%p) {
            }
          }
          subgraph @h = graph @h(%p: float32[2]) -> (%q) {
            %q: float32[2] = call(%p) {body="k", composite="", compiler="", stateful=false}
            subgraph @k = graph @k(%p: float32[2]) -> (%p) {
            }
          }
        }
        """,
        """
        graph @g(%x: float32[2]) -> (%y) {
          %y: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=false}
          subgraph @f = graph @f(%p: float32[2]) -> (%p) {
          }
        }
        """,
    )


def test_what_is_run_stays() -> None:
    check_declined(
        remove_unused_functions,
        """
        graph @g(%x: float32[2], %c: bool[]) -> (%y) {
          %y: float32[2] = if(%c, %x) {then="f", otherwise="h"}
          subgraph @f = graph @f(%p: float32[2]) -> (%p) {
          }
          subgraph @h = graph @h(%p: float32[2]) -> (%p) {
          }
        }
        """,
    )
