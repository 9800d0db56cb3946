"""Kernels within a budget of RAM."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import InputError, MicrofoldError
from microfold.ir.graph import Graph
from microfold.kernels.layer import LayerContext
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.options import OPTIMIZE, Options
from microfold.program import Program
from tests.growth.families import FLOAT, Builder, build
from tests.kernels import graphs
from tests.lowering.figures import figures_of_build

TARGET = target.load("cortex-m4")
CONV = graphs.conv2d_graph(8, 8, 8, 8, padding=((1, 1), (1, 1)))
# The image, which is computed over itself: one row and one pixel ahead.
IMAGE = 8 * 8 * 8


@cache
def _compiled(ram: int | None, flash: int | None = None, optimize: str = "speed") -> Program:
    return compile_graph(CONV, TARGET, Options(ram=ram, flash=flash, optimize=optimize))


def _time(program: Program) -> float:
    """About the cycles, by which `speed` goes."""
    (layer,) = program.layers
    context = LayerContext(layer.node, program.graph.constants, TARGET, program.ranges)
    return layer.kernel.cycles(context)


@pytest.mark.slow
def test_less_ram_takes_more_time() -> None:
    """From no limit down to the least: arenas fit, and no smaller one is faster."""
    programs = [_compiled(None)]
    limit = programs[0].arena.size
    while True:
        try:
            programs.append(_compiled(limit))
        except InputError:
            break
        assert programs[-1].arena.size <= limit
        limit = programs[-1].arena.size - 8
    times = [_time(program) for program in programs]
    assert len(programs) > 3 and times == sorted(times)
    assert programs[-1].arena.size < IMAGE + 256 < programs[0].arena.size


@pytest.mark.parametrize("optimize", OPTIMIZE)
def test_the_least_is_found_at_every_level(optimize: str) -> None:
    with pytest.raises(InputError) as refused:
        _compiled(100, optimize=optimize)
    least = int(str(refused.value).split("allow ")[1].split(",")[0])
    assert _compiled(least, optimize=optimize).arena.size == least
    with pytest.raises(InputError, match=f"allow {least}"):
        _compiled(least - 8, optimize=optimize)


def test_an_impossible_budget_is_proved() -> None:
    with pytest.raises(
        InputError,
        match=r"arena and state must fit 100 bytes of RAM; the state needs 0, layer 0 \(conv2d\) "
        r"'model/layer/out' alone needs \d+ "
        r"with the kernel of least memory, s8_conv2d__\w+, .* no order of the layers and no kernels need "
        r"less than \d+, which is proved; .*: allow \d+",
    ):
        _compiled(100)


def test_what_is_not_proved_is_not_said_to_be() -> None:
    """Of a tree, a smaller arena than the one of the order that is found may be there for all we know."""
    graph = build("tree", 64)
    with pytest.raises(InputError, match="in others it is not"):
        compile_graph(graph, TARGET, Options(ram=48))


def test_ram_and_flash() -> None:
    """The faster kernel takes either more RAM or more flash; where both are short, neither is there."""
    free = _compiled(None)
    less = figures_of_build(CONV, TARGET, Options(ram=free.arena.size - 8, optimize="speed"))
    both = _compiled(free.arena.size - 8, less.flash - 8)
    assert both.arena.size < free.arena.size
    assert _time(both) >= _time(_compiled(free.arena.size - 8)) >= _time(free)
    with pytest.raises(InputError, match="the smallest kernels that fit the RAM"):
        _compiled(free.arena.size, 100)


def test_state_counts() -> None:
    graph = build("states", 8)
    free = compile_graph(graph, TARGET)
    needed = free.arena.size + free.state_size
    assert compile_graph(graph, TARGET, Options(ram=needed)).arena.size <= free.arena.size
    with pytest.raises(InputError, match=f"the state needs {free.state_size}, .* allow {needed}"):
        compile_graph(graph, TARGET, Options(ram=free.state_size))


def test_more_than_enough_changes_no_bits_of_elementwise_layers() -> None:
    """Nothing to choose: the same program."""
    b = Builder(0)
    graph = b.graph(b.emit(LeakyRelu(0.1, FLOAT), b.input((1, 64))))
    one, other = (compile_graph(graph, TARGET, Options(ram=ram)) for ram in (None, 1 << 20))
    assert [layer.kernel.name for layer in one.layers] == [layer.kernel.name for layer in other.layers]


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(st.sampled_from(OPTIMIZE), st.integers(500, 9000), st.sampled_from([None, 2000, 6000]))
def test_budgets_are_kept(optimize: str, ram: int, flash: int | None) -> None:
    graph: Graph = build("residual", 12)
    try:
        program = compile_graph(graph, TARGET, Options(optimize=optimize, ram=ram, flash=flash))
    except MicrofoldError:
        return
    assert program.arena.size + program.state_size <= ram
    assert flash is None or program.flash <= flash
