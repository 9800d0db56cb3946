"""Random networks computed row by row: handed rows, within a run, in windows, in rings, and carried.

Bits are those of the reference, on the host under the sanitizers too, and on simulated cores, where unaligned
accesses trap if they do on the core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import InputError, UnsupportedModelError
from microfold.ir.graph import Graph
from microfold.options import OPTIMIZE, Options
from microfold.program import Program
from microfold.verification.verify import input_sets, verify
from tests.codegen.test_sanitizers import COMPILERS
from tests.codegen.test_sanitizers import check as check_with_sanitizers
from tests.e2e.refusals import needed
from tests.needs import CROSS_TOOLS, need_sanitizers, need_tools
from tests.plan.stream.nets import Nets, Varied
from tests.sampling import sampled, sampled_rows

CORES = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m55")
TOGETHER = 6
FIRST = range(100, 100 + 16 * TOGETHER, TOGETHER)


def _limits(graph: Graph, core: str) -> Iterator[Options]:
    """Of a run over a whole image: the least RAM with which it works by rows."""
    for io in ("caller", "arena"):
        try:
            compile_graph(graph, target.load(core), Options(io=io, ram=8))
        except InputError as refused:
            if "computed by rows" in str(refused):
                yield Options(io=io, ram=needed(refused))


def programs(seed: int, core: str, *, limited: bool = True, nets: type[Nets] = Nets) -> Iterator[Program]:
    """A network in all ways in which its rows are computed; levels take turns.

    Args:
        limited: also those that a limit of RAM leads to.
    """
    graph = nets(seed).draw(pooled=seed % 3 == 0)
    ways = [Options(io="rows", optimize=OPTIMIZE[seed % len(OPTIMIZE)])]
    ways += _limits(graph, core) if limited else []
    for number, options in enumerate(ways):
        try:
            program = compile_graph(graph, target.load(core), options, name=f"net{seed}_{number}")
        except UnsupportedModelError:
            continue  # a first layer that does not work by rows
        if program.stream is not None:
            yield program


def check(first: int, core: str, *, limited: bool = True, nets: type[Nets] = Nets) -> None:
    checked = 0
    for seed in range(first, first + TOGETHER):
        for program in programs(seed, core, limited=limited, nets=nets):
            result = verify(program, input_sets([b.type for b in program.inputs], 6))
            assert result.exact, (program.name, program.options, result.first_difference)
            checked += 1
    assert checked >= TOGETHER // 2


def on_cores(firsts: Sequence[int], every: int) -> pytest.MarkDecorator:
    """Networks that go together, by their first ones, on all cores."""
    rows = [(core, first) for first in firsts for core in CORES]
    return pytest.mark.parametrize(("core", "first"), sampled_rows(rows, every))


@pytest.mark.slow
@pytest.mark.parametrize("first", sampled(FIRST, 16))
def test_host(first: int) -> None:
    need_tools("cc")
    check(first, "host")


@pytest.mark.slow
@pytest.mark.parametrize("first", sampled(FIRST, 16))
def test_more_kinds_of_layers(first: int) -> None:
    need_tools("cc")
    check(first, "host", nets=Varied)


@pytest.mark.slow
@pytest.mark.timeout(600)
@on_cores(FIRST[:4], 14)
def test_more_kinds_of_layers_on_simulated_cores(core: str, first: int) -> None:
    need_tools(*CROSS_TOOLS)
    check(first, core, nets=Varied)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("all_rings")
@on_cores(FIRST[2:3], 3)
def test_rings_on_simulated_cores(core: str, first: int) -> None:
    need_tools(*CROSS_TOOLS)
    check(first, core, limited=False)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("all_rings")
@pytest.mark.parametrize("first", FIRST)
def test_rings(first: int) -> None:
    need_tools("cc")
    check(first, "host", limited=False)


@pytest.mark.slow
@pytest.mark.usefixtures("all_carried")
@pytest.mark.parametrize("first", sampled(FIRST, 4))
def test_carried_rows(first: int) -> None:
    need_tools("cc")
    check(first, "host", limited=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("all_carried")
@on_cores(FIRST[1:2], 3)
def test_carried_rows_on_simulated_cores(core: str, first: int) -> None:
    need_tools(*CROSS_TOOLS)
    check(first, core, limited=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
@on_cores(FIRST[:4], 14)
def test_simulated_cores(core: str, first: int) -> None:
    need_tools(*CROSS_TOOLS)
    check(first, core)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", sampled(FIRST, 16))
def test_sanitizers(first: int, tmp_path: Path) -> None:
    """What the caller hands in and the context have red zones; compilers and kinds of networks take turns."""
    compiler = COMPILERS[first // TOGETHER % 2]
    need_sanitizers(compiler)
    nets = (Nets, Varied)[first // TOGETHER // 2 % 2]
    seeds = range(first, first + TOGETHER)
    found = [program for seed in seeds for program in programs(seed, "host", nets=nets)]
    assert check_with_sanitizers(found, compiler, tmp_path) >= TOGETHER // 2
