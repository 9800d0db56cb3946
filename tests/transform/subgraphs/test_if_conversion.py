from __future__ import annotations

from microfold.transform.subgraphs.if_conversion import if_conversion
from tests import loops
from tests.transform.check import check_declined, check_rewrite

BODIES = """
  subgraph @f = graph @f(%p: int8[2] q(0.1, 3)) -> (%p, %q) {
    %q: int8[2] q(0.2, 3) = add(%p, %p)
  }
  subgraph @h = graph @h(%p: int8[2] q(0.1, 3)) -> (%r, %q) {
    %r: int8[2] q(0.1, 3) = clip(%p) {minimum=0.0, maximum=1.0}
    %q: int8[2] q(0.2, 3) = add(%p, %r)
  }
}
"""


def test_both_branches_run() -> None:
    check_rewrite(
        if_conversion,
        """
graph @g(%x: int8[2] q(0.1, 3), %c: bool[1]) -> (%y, %z) {
  %y: int8[2] q(0.1, 3), %z: int8[2] q(0.2, 3) = if(%c, %x) {then="f", otherwise="h"}"""
        + BODIES,
        """
graph @g(%x: int8[2] q(0.1, 3), %c: bool[1]) -> (%y#2, %z#2) {
  %c#1: bool[] = reshape(%c) {shape=()}
  %y: int8[2] q(0.1, 3), %z: int8[2] q(0.2, 3) = call(%x) {body="f", composite="", compiler="", stateful=false}
  %y#1: int8[2] q(0.1, 3), %z#1: int8[2] q(0.2, 3) = call(%x) {body="h", composite="", compiler="", stateful=false}
  %y#2: int8[2] q(0.1, 3) = select(%c#1, %y, %y#1)
  %z#2: int8[2] q(0.2, 3) = select(%c#1, %z, %z#1)"""  # noqa: E501
        + BODIES,
    )


def test_what_an_epilogue_hangs_on_stays() -> None:
    check_declined(
        if_conversion,
        """
graph @g(%x: int8[2] q(0.1, 3), %c: bool[1]) -> (%y, %z) {
  %y: int8[2] q(0.1, 3), %z: int8[2] q(0.2, 3) = if(%c, %x) {then="f", otherwise="h"} | clip() {minimum=0.0, maximum=1.0}"""  # noqa: E501
        + BODIES,
        "it has an epilogue",
    )


def test_products_and_loops_are_not_run_for_nothing() -> None:
    check_declined(if_conversion, loops.BRANCH, "@f has 16 products")
    text = f"""
    graph @g(%c: bool[], %x: int32[3]) -> (%y) {{
      %y: int32[3] = if(%c, %x) {{then="f", otherwise="h"}}
      subgraph @f = graph @f(%x: int32[3]) -> (%u) {{
        %y = constant int32[3] [1, 2, 3]
        {loops.SWAP.partition("{")[2].replace("%k)", "%x)").rstrip().removesuffix("}")}
      }}
      subgraph @h = graph @h(%x: int32[3]) -> (%x) {{
      }}
    }}
    """
    check_declined(if_conversion, text, "@f has a loop or a condition that stays")
