from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent

import numpy as np
import pytest

from microfold.errors import InputError
from microfold.ir.node import Value
from microfold.ir.rewrite import RewriteSite
from microfold.ir.text import parse
from microfold.ir.types import DType, ElementType, TensorType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.minimum import Minimum
from microfold.transform.requested.legalize import Legalize
from tests.transform.check import check_declined, check_rewrite

BEFORE = """
graph @g(%x: float32[2]) -> (%y) {
  %a: float32[2] = tanh(%x)
  %y: float32[2] = clip(%a) {minimum=-inf, maximum=0.5}
}
"""


def as_minimum(site: RewriteSite[None]) -> Sequence[Value] | None:
    """A bound on one side only, by an operator that does no more."""
    op = site.node.op
    assert isinstance(op, Clip)
    if op.minimum > -np.inf:
        return None
    bound = np.array([op.maximum], np.float32)
    return site.emit(
        Minimum(), site.value(0), site.builder.constant(bound, TensorType(DType.FLOAT32, (1,)), "bound")
    )


@pytest.mark.parametrize("key", [Clip, "clip"])
def test_a_rule_of_the_user(key: type[Clip] | str) -> None:
    decisions = check_rewrite(
        Legalize({key: as_minimum}),
        BEFORE,
        """
        graph @g(%x: float32[2]) -> (%y) {
          %a: float32[2] = tanh(%x)
          %bound = constant float32[1] [0.5]
          %y: float32[2] = minimum(%a, %bound)
        }
        """,
    )
    assert [str(decision) for decision in decisions] == ["legalize: clip %y: replaced by its rule"]


def test_rules_may_leave_a_node() -> None:
    text = "graph @g(%x: float32[2]) -> (%y) { %y: float32[2] = clip(%x) {minimum=0.0, maximum=0.5} }"
    check_declined(Legalize({Clip: as_minimum}), text, "its rule returned None")
    check_declined(Legalize(), text)


def test_mistakes_of_rules() -> None:
    graph = parse(dedent(BEFORE))
    with pytest.raises(InputError, match="unknown operator 'clap'; operators: abs"):
        Legalize({"clap": as_minimum})(graph)
    int8 = ElementType(DType.INT8)

    def other_type(site: RewriteSite[None]) -> Value:
        array = np.zeros(2, np.int8)
        return site.builder.constant(array, TensorType(int8.dtype, (2,)), "zero")

    with pytest.raises(InputError, match=r"for clip %y returns \(int8\[2\]\) for \(float32\[2\]\)"):
        Legalize({Clip: other_type})(graph)
