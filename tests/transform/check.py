"""What every test of a pass does: text before, text after, and the same meaning."""

from __future__ import annotations

from textwrap import dedent

from msgspec.structs import replace

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.ir.graph import Graph, verify
from microfold.ir.text import parse, to_text
from microfold.passes.context import Decision, PassContext
from microfold.passes.kinds import Pass
from tests.evaluation import assert_same_meaning


def check_rewrite(
    step: Pass, before: str, after: str, context: PassContext | None = None, *, tolerance: float = 0.0
) -> list[Decision]:
    """The pass makes one text of the other, keeps the meaning, and finds nothing more to do then.

    Returns:
        What the pass decided.
    """
    decisions: list[Decision] = []
    context = replace(context or PassContext(), sink=decisions.append)
    graph = parse(dedent(before))
    result = step(graph, context)
    verify(result)
    assert to_text(result) == dedent(after).lstrip()
    assert_same_meaning(graph, result, tolerance=tolerance)
    assert to_text(step(result)) == to_text(result)
    assert any(decision.fired for decision in decisions)
    return decisions


def check_declined(step: Pass, text: str, reason: str = "", context: PassContext | None = None) -> Graph:
    """The pass returns the very graph, and gives a reason with these words in it (if any are given)."""
    decisions: list[Decision] = []
    graph = parse(dedent(text))
    assert step(graph, replace(context or PassContext(), sink=decisions.append)) is graph
    assert not any(decision.fired for decision in decisions)
    if reason:
        assert any(reason in decision.reason for decision in decisions), decisions
    return graph
