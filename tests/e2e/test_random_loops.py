"""Loops of random bodies: whatever is carried, changes places, stays or is read late."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.text import parse
from microfold.options import Options
from microfold.verification.verify import input_sets, verify

OPERATORS = ("add", "sub", "mul", "minimum", "maximum", "bitwise_xor")


def random_loop(seed: int) -> Graph:
    """int32 values, a few of them carried; the condition counts, or compares what the model computes."""
    rng = np.random.default_rng(seed)
    carried = int(rng.integers(1, 5))
    names = [f"%p{i}" for i in range(carried)]
    lines: list[str] = []
    values = list(names)
    for index in range(int(rng.integers(1, 7))):
        a, b = rng.choice(values, 2)
        lines.append(f"    %t{index}: int32[3] = {rng.choice(OPERATORS)}({a}, {b})")
        values.append(f"%t{index}")
    results = rng.choice(values, carried).tolist()
    operands = rng.choice(["%x", "%y", "%z", "%c"], carried).tolist()
    outputs = [
        f"%r{i}" for i in sorted(rng.choice(carried, int(rng.integers(1, carried + 1)), replace=False))
    ]
    outputs += ["%z"] if rng.random() < 0.3 else []
    limit = "%n" if rng.random() < 0.5 else "%six"
    given = ", ".join(operands)
    types = ", ".join(f"{name}: int32[3]" for name in names)
    head = ", ".join(f"%r{i}: int32[3]" for i in range(carried))
    body = "\n".join(lines)
    return parse(f"""
graph @loop_{seed}(%x: int32[3], %y: int32[3], %k: int32[]) -> ({", ".join(outputs)}) {{
  %c = constant int32[3] [3, -1, 70000]
  %z: int32[3] = add(%x, %y)
  %six = constant int32[] [6]
  %n: int32[] = minimum(%k, %six)
  %zero = constant int32[] [0]
  %i: int32[], {head}, %l: int32[] = while(%zero, {given}, {limit}) {{condition="test", body="step"}}
  subgraph @test = graph @test(%i: int32[], {types}, %l: int32[]) -> (%less) {{
    %less: bool[] = compare(%i, %l) {{relation="less"}}
  }}
  subgraph @step = graph @step(%i: int32[], {types}, %l: int32[]) -> (%j, {", ".join(results)}, %l) {{
    %one = constant int32[] [1]
    %j: int32[] = add(%i, %one)
{body}
  }}
}}
""")


def check(seed: int, core: str = "host") -> None:
    graph = random_loop(seed)
    options = Options(io="caller" if seed % 2 else "arena")
    program = compile_graph(graph, target.load(core), options)
    calls = [
        (*arrays[:2], np.array(count, np.int32))
        for arrays, count in zip(
            input_sets([value.type for value in graph.inputs], 6), (0, 6, -3, 1, 2, 5), strict=True
        )
    ]
    result = verify(program, calls)
    assert result.exact, (seed, result.first_difference)


@pytest.mark.parametrize("seed", range(2))
def test_random_loops(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Options, "unroll", 0)
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", [10])
def test_more_random_loops(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Options, "unroll", 0)
    for seed in range(first, first + 20):
        check(seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("core", ["host", "cortex-m4", "cortex-m0plus"])
def test_many_random_loops(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Options, "unroll", 0)
    for seed in range(100, 260):
        check(seed, core)
