"""What a verification compares with what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen.emit import Build, emit_build
from microfold.compiler import compile_graph
from microfold.host.session import Session
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Node, Value
from microfold.ir.text import parse
from microfold.ir.types import Array, Tensor
from microfold.program import Program
from microfold.simulate import program as simulate_program
from microfold.simulate import run
from microfold.simulate.firmware import Firmware
from microfold.verification.verify import FLOAT_TOLERANCE, compare, input_sets, verify
from tests.needs import CROSS_TOOLS

THREE_LAYERS = """
graph @three(%x: float32[2,3]) -> (%c) {
  %v = constant float32[3,3] [1.0, 2.0, 0.5, 0.25, 1.0, 3.0, 1.5, 0.5, 1.0]
  %w = constant float32[3,3] [0.5, 2.0, 1.0, 0.75, 1.0, 2.0, 1.5, 2.5, 1.0]
  %a: float32[2,3] = fully_connected(%x, %v)
  %b: float32[2,3] = softmax(%a) {beta=1.0}
  %c: float32[2,3] = fully_connected(%b, %w)
}
"""


@pytest.mark.parametrize(("part", "faulty"), [(0.9, []), (1.5, [0, 1, 2])])
def test_floats_do_not_add_up(part: float, faulty: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer is off by a part of what is allowed, from what it reads on."""
    program = compile_graph(parse(THREE_LAYERS), target.load("host"))
    assert [layer.index for layer in program.layers] == [0, 1, 2]

    def run_layers(_: Session, *inputs: Array) -> tuple[tuple[Array, ...], dict[Value, Array]]:
        values: dict[Value, Array] = {}

        def off(node: Node) -> list[Array]:
            return [values[value] for value in node.outputs]

        def observe(node: Node, results: tuple[Tensor, ...]) -> None:
            for value, result in zip(node.outputs, results, strict=True):
                values[value] = result.data * np.float32(1 + part * FLOAT_TOLERANCE)

        Interpreter(program.graph).run(*inputs, observe=observe, given=off)
        return tuple(values[value] for value in program.graph.outputs), values

    monkeypatch.setattr(Session, "run_layers", run_layers)
    sets = input_sets([buffer.type for buffer in program.inputs], 4)[1:]
    assert [difference.layer for difference in verify(program, sets).differences] == faulty


def test_outputs_count_as_they_are_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer's result is right when the layer has run, and overwritten later."""
    program = compile_graph(parse(THREE_LAYERS), target.load("host"))
    run = Session.run_layers

    def overwritten(session: Session, *inputs: Array) -> tuple[tuple[Array, ...], Mapping[Value, Array]]:
        outputs, values = run(session, *inputs)
        return tuple(array + 1 for array in outputs), values

    sets = input_sets([buffer.type for buffer in program.inputs], 4)
    assert verify(program, sets).exact
    monkeypatch.setattr(Session, "run_layers", overwritten)
    assert [difference.layer for difference in verify(program, sets).differences] == [2]


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize(("outputs", "images"), [("%c", [False, True]), ("%a, %b, %c", [False])])
def test_hooks_are_built_where_not_all_is_output(
    outputs: str, images: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong weight of the last layer is found with and without an image that has hooks."""
    program = compile_graph(parse(THREE_LAYERS.replace("(%c)", f"({outputs})")), target.load("cortex-m4"))
    sets = input_sets([buffer.type for buffer in program.inputs], 4)
    built: list[bool] = []

    class Watched(Firmware):
        def __init__(self, *args: Any, hooked: bool, **kwargs: Any):
            built.append(hooked)
            super().__init__(*args, hooked=hooked, **kwargs)

    monkeypatch.setattr(run, "Firmware", Watched)
    right = verify(program, sets)
    assert (right.exact, right.tensors, built) == (True, 3 * 4, images)

    def damaged(program: Program) -> Build:
        build = emit_build(program)
        files = {name: text.replace("0.75", "0.25") for name, text in build.files.items()}
        assert files != build.files
        return replace(build, files=files)

    monkeypatch.setattr(simulate_program, "emit_build", damaged)
    assert [difference.layer for difference in verify(program, sets).differences] == [2]


@pytest.mark.filterwarnings("error")
def test_a_nan_on_one_side_is_the_largest_difference() -> None:
    expected = np.array([0.0, 1.0, np.nan], np.float32)
    assert compare(expected, expected) is None
    for actual in (np.full(3, np.nan, np.float32), np.array([9.0, np.nan, np.nan], np.float32)):
        found = compare(actual, expected)
        assert found is not None
        assert found[0] == 2
        assert np.isnan(found[1])
