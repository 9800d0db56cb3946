"""Models with IF, WHILE and CALL: every tensor of the generated C against the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import load
from microfold.passes.kinds import Sequential
from microfold.transform.simplify.fold_constant import fold_constant
from microfold.transform.subgraphs.if_conversion import if_conversion
from microfold.transform.subgraphs.inline import inline
from microfold.transform.subgraphs.partial_evaluate import PartialEvaluate
from microfold.verification.verify import input_sets, verify

MADE = Path(__file__).resolve().parents[1] / "models" / "made"
FLATTEN = Sequential(
    [inline, PartialEvaluate(), inline, fold_constant, PartialEvaluate(), if_conversion, inline]
)


@pytest.mark.parametrize(
    "name",
    [
        "control_flow/if_int8",
        "control_flow/while_int8",
        "control_flow/while_variable_f32",
        "control_flow/call_f32",
        "lstm_f32",
    ],
)
def test_on_the_host(name: str) -> None:
    graph = FLATTEN(load(MADE / f"{name}.tflite"))
    assert not any(node.op.bodies for node in graph.nodes)
    program = compile_graph(graph, target.load("host"))
    result = verify(program, input_sets([buffer.type for buffer in program.inputs], 6))
    assert result.exact, result.first_difference


def test_a_loop_of_unknown_length_is_refused() -> None:
    graph = load(MADE / "control_flow" / "while_input_f32.tflite")
    with pytest.raises(UnsupportedModelError, match="must run a number of times that is known") as error:
        compile_graph(graph, target.load("cortex-m4"))
    assert len(error.value.problems) == 1
