"""How often loops run."""

from __future__ import annotations

import pytest

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.analysis.ranges import analyze
from microfold.analysis.trip_count import TripCount, trip_count
from microfold.ir.interpret import Interpreter
from microfold.ir.text import parse

LOOP = """
graph @g({inputs}) -> (%i) {{
  %start = constant int32[] [{start}]
  %i: int32[], %n: int32[] = while({operands}) {{condition="test", body="step"}}
  subgraph @test = graph @test(%i: int32[], %n: int32[]) -> (%c) {{
    %end = constant int32[] [{end}]
    {condition}
  }}
  subgraph @step = graph @step(%i: int32[], %n: int32[]) -> (%j, %n) {{
    %by = constant int32[] [{by}]
    {step}
  }}
}}
"""
COUNTED = '%c: bool[] = compare(%i, %end) {{relation="{}"}}'
ADD = "%j: int32[] = add(%i, %by)"


def loop(
    condition: str = COUNTED.format("less"),
    step: str = ADD,
    *,
    start: int = 0,
    end: int = 5,
    by: int = 1,
    inputs: str = "",
    operands: str = "%start, %start",
) -> str:
    return LOOP.format(
        condition=condition, step=step, start=start, end=end, by=by, inputs=inputs, operands=operands
    )


def count(text: str, limit: int = 0) -> TripCount:
    """By arithmetic alone where the limit is 0."""
    graph = parse(text)
    return trip_count(graph.nodes[-1], graph, analyze(graph), limit)


@pytest.mark.parametrize(
    ("relation", "start", "end", "by"),
    [
        ("less", 0, 5, 1),
        ("less", 0, 5, 2),
        ("less", 7, 5, 1),
        ("less_equal", 0, 5, 1),
        ("less_equal", -3, 6, 4),
        ("greater", 9, 2, -3),
        ("greater_equal", 9, 3, -3),
        ("not_equal", 0, 6, 2),
        ("not_equal", 6, 0, -1),
    ],
)
def test_counters(relation: str, start: int, end: int, by: int) -> None:
    """The number is that of the runs: the counter has moved so far."""
    text = loop(COUNTED.format(relation), start=start, end=end, by=by)
    found = count(text)
    (last,) = Interpreter(parse(text)).run()
    assert found.exact == found.most == (int(last) - start) // by


@pytest.mark.parametrize(
    "text",
    [
        loop(COUNTED.format("less"), by=0),
        loop(COUNTED.format("less"), by=-1),
        loop(COUNTED.format("not_equal"), end=5, by=2),
        loop(COUNTED.format("equal"), end=0),
        loop(COUNTED.format("less"), end=2**31 - 1, by=2),  # 2^31 - 2 and 2 more are less again
        loop(step="%j: int32[] = mul(%i, %by)"),
        loop(
            '%c: bool[] = compare(%i, %n) {relation="not_equal"}', inputs="%m: int32[]", operands="%start, %m"
        ),
    ],
)
def test_no_bound(text: str) -> None:
    found = count(text)
    assert found.most is None
    assert found.exact is None
    assert found.reason


def test_either_side_and_several_comparisons() -> None:
    swapped = loop('%c: bool[] = compare(%end, %i) {relation="greater"}')
    assert count(swapped).exact == 5
    subtracted = loop(COUNTED.format("greater"), "%j: int32[] = sub(%i, %by)", start=5, end=0)
    assert count(subtracted).exact == 5
    both = loop(
        """%t: bool[] = compare(%i, %end) {relation="less"}
    %u: bool[] = compare(%i, %n) {relation="less_equal"}
    %c: bool[] = minimum(%t, %u)""",
        operands="%start, %start",
    )
    assert count(both).exact == 1
    computed = both.replace("graph @g()", "graph @g(%m: int32[])").replace("%start, %start)", "%start, %m)")
    found = count(computed)
    assert (found.most, found.exact) == (5, None)


def test_ranges_bound_what_the_model_computes() -> None:
    text = loop('%c: bool[] = compare(%i, %n) {relation="less"}', inputs="%m: int32[]", operands="%start, %l")
    text = text.replace(
        "  %i: int32[], %n",
        "  %nine = constant int32[] [9]\n  %l: int32[] = minimum(%m, %nine)\n  %i: int32[], %n",
        1,
    )
    found = count(text)
    assert (found.most, found.exact) == (9, None)


def test_others_are_run() -> None:
    doubling = loop(step="%j: int32[] = add(%i, %i)", start=1, end=100)
    assert count(doubling).most is None
    assert count(doubling, limit=6).exact is None
    assert count(doubling, limit=7).exact == 7
