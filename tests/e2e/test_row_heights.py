"""How many rows each call computes: together with others, under a limit of RAM, or whatever that allows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from microfold import target
from microfold.compiler import compile_graph
from microfold.options import Options
from microfold.plan.stream.row_node import RowNode, as_row_node, following
from microfold.program import Program
from microfold.verification.verify import input_sets, verify
from tests.plan.stream.nets import Nets, layers_of

CORE = target.load("cortex-m4")
ROWS = Options(io="rows")


def widths(program: Program) -> list[int]:
    assert program.stream is not None
    (region,) = program.stream.timeline.regions
    return [node.width for node in region.nodes if not node.accumulates]


def time(program: Program) -> float:
    return sum(layer.estimated_cycles or 0.0 for layer in program.layers)


def chain(width: int) -> Sequence[RowNode]:
    """The layers of `Nets.narrow`, each with the calls that the one before lets it make."""
    layers = layers_of(Nets(0).narrow())[:4]
    first = as_row_node(layers[0], width)
    assert isinstance(first, RowNode)
    made = [first]
    for layer in layers[1:]:
        single = as_row_node(layer)
        assert isinstance(single, RowNode)
        found = following(single, made[-1], width)
        assert isinstance(found, RowNode)
        made.append(found)
    return made


def test_calls_compute_what_the_one_before_lets_them() -> None:
    points, columns, *others = chain(4)
    assert points.parts == ((0, 4), (4, 8), (8, 12))
    # The last row reads padding: it is computed apart.
    assert columns.parts == ((0, 3), (3, 7), (7, 11), (11, 12))
    assert [node.parts for node in others] == [columns.parts, ((0, 2), (2, 6), (6, 10), (10, 11), (11, 12))]


def test_no_call_reads_rows_that_another_one_could_have_read() -> None:
    for width in (2, 3, 5):
        _, columns, *_ = chain(width)
        spans = columns.readings[0].spans
        # Two rows stay from call to call, one at the image's upper edge.
        assert all(before - first <= 2 for (_, before), (first, _) in pairwise(spans))


def test_layers_of_a_height_compute_several_rows_together() -> None:
    least = compile_graph(Nets(0).narrow(), CORE, ROWS)
    ram = least.arena.size + 1000
    built = compile_graph(Nets(0).narrow(), CORE, Options(io="rows", ram=ram))
    assert set(widths(least)) == {1} and min(widths(built)) > 1
    assert built.arena.size <= ram
    assert time(built) < 0.9 * time(least)
    # Calls for one row and for several read the same constants.
    assert built.weight_bytes == least.weight_bytes
    result = verify(built, input_sets([each.type for each in built.inputs], 2))
    assert result.exact, result.first_difference


def test_a_limit_is_no_worse_than_none() -> None:
    for graph in (Nets(0).narrow(), Nets(0).tall(), Nets(8).draw()):
        free = compile_graph(graph, CORE, ROWS)
        for more in (0, 64, 300):
            limited = Options(io="rows", ram=free.arena.size + more, objective="cycles=1")
            assert time(compile_graph(graph, CORE, limited)) <= time(free)
