from __future__ import annotations

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.ir.families import carried, families
from microfold.ir.text import parse

TYPE = "float32[2]"


def test_what_a_loop_carries() -> None:
    """%b becomes %a, %c becomes %b: both matter for %a. The condition reads %e."""
    body = parse(
        f"graph @g(%a: {TYPE}, %b: {TYPE}, %c: {TYPE}, %d: {TYPE}, %e: {TYPE}) -> (%b, %c, %c, %d, %e) {{ }}"
    )
    condition = parse(
        f"""
        graph @g(%a: {TYPE}, %b: {TYPE}, %c: {TYPE}, %d: {TYPE}, %e: {TYPE}) -> (%f) {{
          %f: bool[2] = compare(%e, %e) {{relation="less"}}
        }}
        """
    )
    assert carried(condition, body) == {4}
    assert carried(condition, body, {0}) == {0, 1, 2, 4}
    assert carried(condition, body, {3}) == {3, 4}


def test_families() -> None:
    graph = parse(
        """
        graph @g(%x: float32[2], %c: bool[]) -> (%c) {
          %a: float32[2] = call(%x) {body="one"}
          %b: float32[2] = if(%c, %x) {then="two", otherwise="three"}
          %d: float32[2] = if(%c, %x) {then="two", otherwise="four"}
          subgraph @four = graph @f(%p: float32[2]) -> (%p) { }
          subgraph @one = graph @f(%p: float32[2]) -> (%p) { }
          subgraph @three = graph @f(%p: float32[2]) -> (%p) { }
          subgraph @two = graph @f(%p: float32[2]) -> (%p) { }
          subgraph @unused = graph @f(%p: float32[2]) -> (%p) { }
        }
        """
    )
    call, *conditions = graph.nodes
    first, second = families(graph)
    assert (first.names, first.nodes) == (("four", "three", "two"), tuple(conditions))
    assert (second.names, second.nodes) == (("one",), (call,))
