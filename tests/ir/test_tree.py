from __future__ import annotations

from textwrap import dedent

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.ir.text import parse
from microfold.ir.tree import to_tree


def test_shared_values_states_and_subgraphs() -> None:
    graph = parse(
        dedent(
            """
            graph @g(%x: float32[1]) -> (%y, %z) {
              state %s: float32[1] initial [0.0] next %z
              %k = constant float32[1] [2.0]
              %a: float32[1] = add(%x, %k) | clip() {minimum=0.0, maximum=6.0}
              %y: float32[1] = mul(%a, %a)
              %z: float32[1] = call(%s, %k, %y) {body="f"}
              subgraph @f = graph @f(%p: float32[1], %q: float32[1], %r: float32[1]) -> (%t) {
                %t: float32[1] = add(%p, %r)
              }
            }
            """
        )
    )
    assert to_tree(graph) == dedent(
        """\
        graph @g(%x: float32[1]) -> (%y, %z)
          state %s next %z
          %y: float32[1] = mul
            %a: float32[1] = add | clip {minimum=0.0, maximum=6.0}
              %x
              %k = constant float32[1] [2.0]
            %a (above)
          %z: float32[1] = call {body="f", composite="", compiler="", stateful=false}
            %s
            %k
            %y (above)
          %z (above)
          subgraph @f = graph @f(%p: float32[1], %q: float32[1], %r: float32[1]) -> (%t)
            %t: float32[1] = add
              %p
              %r
        """
    )


def test_absent_operands_and_elided_constants() -> None:
    graph = parse(
        dedent(
            """
            graph @g(%x: float32[1,20]) -> (%y) {
              %w = constant float32[1,20] dense<AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=>
              %y: float32[1,1] = fully_connected(%x, %w, none)
            }
            """  # noqa: E501
        )
    )
    lines = to_tree(graph, elide=True).splitlines()
    assert lines[3].startswith("    %w = constant float32[1,20] dense<sha256:")
    assert lines[4] == "    none"


def test_deep_graphs_need_no_recursion() -> None:
    nodes = "\n".join(f"%v{i + 1}: float32[1] = tanh(%v{i})" for i in range(3000))
    text = to_tree(parse(f"graph @g(%v0: float32[1]) -> (%v3000) {{\n{nodes}\n}}"))
    assert text.count("tanh") == 3000
