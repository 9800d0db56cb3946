from __future__ import annotations

from typing import ClassVar

import pytest

from microfold.ir import op as op_module
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.types import DType, TensorType
from microfold.transform.simplify.dead_code_elimination import dead_code_elimination
from tests.transform.check import check_declined, check_rewrite


def test_dead_chain_and_its_constant() -> None:
    check_rewrite(
        dead_code_elimination,
        """
        graph @g(%x: float32[2]) -> (%y) {
          %c = constant float32[2] [1.0, 2.0]
          %a: float32[2] = add(%x, %c)
          %b: float32[2] = clip(%a) {minimum=0.0, maximum=1.0}
          %y: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
        }
        """,
        """
        graph @g(%x: float32[2]) -> (%y) {
          %y: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
        }
        """,
    )


def test_state_that_only_feeds_itself() -> None:
    check_rewrite(
        dead_code_elimination,
        """
        graph @g(%x: float32[2]) -> (%y) {
          state %s: float32[2] initial [0.0, 0.0] next %t
          %t: float32[2] = add(%s, %x)
          %y: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
        }
        """,
        """
        graph @g(%x: float32[2]) -> (%y) {
          %y: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
        }
        """,
    )


def test_state_seen_through_another_state_stays() -> None:
    check_declined(
        dead_code_elimination,
        """
        graph @g(%x: float32[2]) -> (%y) {
          state %early: float32[2] initial [0.0, 0.0] next %x
          state %late: float32[2] initial [0.0, 0.0] next %early
          %y: float32[2] = add(%late, %x)
        }
        """,
    )


class _Send(Op, frozen=True):
    """An operator with an effect and no result."""

    name: ClassVar[str] = "test_send"
    has_effect: ClassVar[bool] = True

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return ()


def test_effects_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(op_module.REGISTRY, "test_send", _Send)
    x = Value("x", TensorType(DType.FLOAT32, (2,)))
    graph = Graph("g", (x,), (x,), (Node(_Send(), (x,), ()),))
    assert dead_code_elimination(graph) is graph
