"""Where values lie: outputs that are read on, views, several inputs, state, the caller's buffers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_graph
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Node, Value
from microfold.ir.types import Array, Tensor
from microfold.options import WHOLE_IO, Options
from microfold.verification.verify import compare, input_sets
from tests.codegen import graphs

GRAPHS = graphs.PORTS_AND_STATES


@pytest.mark.parametrize("io", WHOLE_IO)
@pytest.mark.parametrize("single_file", [False, True])
@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_calls_in_sequence_equal_the_interpreter(
    make: Callable[[], Graph], io: str, single_file: bool
) -> None:
    graph = make()
    session = Session(compile_graph(graph, target.load("host"), Options(io=io, single_file=single_file)))
    interpreter = Interpreter(graph)
    calls = input_sets([value.type for value in graph.inputs], 6)
    for repetition in range(2):
        for call in calls:
            outputs = session.run(*call)
            expected = interpreter.run(*call)
            for index, (actual, wanted) in enumerate(zip(outputs, expected, strict=True)):
                assert compare(actual, wanted) is None, f"output {index} after {repetition} resets"
        session.reset()
        interpreter.reset()


@pytest.mark.parametrize("io", WHOLE_IO)
@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_every_layer_can_be_observed(make: Callable[[], Graph], io: str) -> None:
    program = compile_graph(make(), target.load("host"), Options(io=io))
    session = Session(program)
    interpreter = Interpreter(program.graph)
    for call in input_sets([buffer.type for buffer in program.inputs], 4):
        expected: dict[Value, Array] = {}

        def observe(node: Node, results: tuple[Tensor, ...], into: dict[Value, Array] = expected) -> None:
            into.update(zip(node.outputs, (result.data for result in results), strict=True))

        interpreter.run(*call, observe=observe)
        _, values = session.run_layers(*call)
        assert len(values) == sum(len(layer.outputs) for layer in program.layers)
        for value, array in values.items():
            assert compare(array, expected[value]) is None, value.name


def test_initial_states_of_zeros_take_no_flash() -> None:
    files = emit(compile_graph(graphs.accumulator(), target.load("host")))
    assert "accumulator__total_initial[5]" in files["accumulator_weights.h"]
    assert "product_initial" not in files["accumulator_weights.h"]
    assert "memset(ACCUMULATOR_STATE(accumulator__product_offset), 0, 20);" in files["accumulator.c"]
