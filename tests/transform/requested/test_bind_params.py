from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from microfold.errors import InputError
from microfold.ir.graph import verify
from microfold.ir.interpret import Interpreter
from microfold.ir.text import parse, to_text
from microfold.transform.requested.bind_params import BindParams
from microfold.transform.subgraphs.remove_unused_parameters import remove_unused_parameters
from tests.transform.check import check_declined

BEFORE = """\
graph @g(%x: float32[2], %w: float32[2], %"a b": float32[2], %"a b"#1: float32[2]) -> (%z) {
  %y: float32[2] = add(%x, %w)
  %z: float32[2] = add(%y, %"a b")
}
"""
AFTER = """\
graph @g(%x: float32[2], %"a b": float32[2], %"a b"#1: float32[2]) -> (%z) {
  %w = constant float32[2] [1.0, 2.0]
  %y: float32[2] = add(%x, %w)
  %z: float32[2] = add(%y, %"a b")
}
"""
W = np.array([1, 2], np.float32)


def test_an_input_becomes_a_constant() -> None:
    graph = parse(BEFORE)
    step = BindParams({"w": W})
    bound = step(graph)
    verify(bound)
    assert to_text(bound) == AFTER
    assert step(bound) is bound
    x, a, b = (np.array([i, -i], np.float32) for i in range(3))
    np.testing.assert_array_equal(Interpreter(graph).run(x, W, a, b), Interpreter(bound).run(x, a, b))
    assert W.flags.writeable


def test_nothing_to_bind() -> None:
    check_declined(BindParams(), BEFORE)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("v", W, "'v' must be the name of one input; it names none; inputs: 'x', 'w', 'a b', 'a b'"),
        ("a b", W, "'a b' must be the name of one input; it names 2"),
        ("w", W[:1], r"the array bound to 'w' must be float32\[2\]; got float32\[1\]"),
        ("w", W.astype(np.int8), r"must be float32\[2\]; got int8\[2\]"),
    ],
)
def test_what_does_not_fit(name: str, array: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        BindParams({name: array})(parse(BEFORE))


def test_a_parameter_of_a_subgraph() -> None:
    text = """
        graph @g(%x: float32[2], %z: float32[2]) -> (%y) {
          %y: float32[2] = call(%x, %z) {body="f", composite="", compiler="", stateful=false}
          subgraph @f = graph @f(%p: float32[2], %w: float32[2]) -> (%t) {
            %t: float32[2] = add(%p, %w)
          }
        }
        """
    graph = parse(dedent(text))
    step = BindParams({"w": W}, func_name="f")
    bound = step(graph)
    verify(bound)
    assert step(bound) is bound
    x, z = (np.array([i, -i], np.float32) for i in range(2))
    np.testing.assert_array_equal(Interpreter(graph).run(x, W), Interpreter(bound).run(x, z))
    narrow = remove_unused_parameters(bound)
    assert [value.name for value in narrow.nodes[0].operands] == ["x"]
    with pytest.raises(InputError, match="there is no function h; the model has g, f"):
        BindParams({"w": W}, func_name="h")(graph)
