from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import GraphError
from microfold.ir.graph import verify
from microfold.ir.interpret import Interpreter
from microfold.ir.text import parse
from microfold.transform.subgraphs.inline import inline
from tests.transform.check import check_declined, check_rewrite


def test_a_body_called_twice() -> None:
    decisions = check_rewrite(
        inline,
        """
        graph @g(%x: float32[2]) -> (%z, %x) {
          %a: float32[2] = call(%x) {body="f", composite="c", compiler="", stateful=false}
          %z: float32[2] = call(%a) {body="f", composite="", compiler="", stateful=false} | clip() {minimum=0.0, maximum=6.0}
          subgraph @f = graph @f(%p: float32[2]) -> (%t) {
            %c = constant float32[2] [1.0, 2.0]
            %t: float32[2] = add(%p, %c)
          }
          subgraph @unused = graph @unused(%p: float32[2]) -> (%p) {
          }
        }
        """,  # noqa: E501
        """
        graph @g(%x: float32[2]) -> (%z, %x) {
          %c = constant float32[2] [1.0, 2.0]
          %t: float32[2] = add(%x, %c)
          %t#1: float32[2] = add(%t, %c)
          %z: float32[2] = clip(%t#1) {minimum=0.0, maximum=6.0}
          subgraph @unused = graph @unused(%p: float32[2]) -> (%p) {
          }
        }
        """,
    )
    assert {decision.reason for decision in decisions} == {"the 1 nodes of @f replace it"}


def test_one_state_for_all_calls() -> None:
    check_rewrite(
        inline,
        """
        graph @g(%x: float32[2]) -> (%a, %b) {
          %a: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=true}
          %b: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=true}
          subgraph @f = graph @f(%p: float32[2]) -> (%t) {
            state %s: float32[2] initial [1.0, 2.0] next %t
            %t: float32[2] = add(%p, %s)
          }
        }
        """,
        """
        graph @g(%x: float32[2]) -> (%t, %t#1) {
          state %s: float32[2] initial [1.0, 2.0] next %t#1
          %t: float32[2] = add(%x, %s)
          %t#1: float32[2] = add(%x, %t)
        }
        """,
    )


def test_reset_reaches_the_states_of_bodies() -> None:
    graph = parse(
        """
        graph @g(%x: float32[1]) -> (%a) {
          %a: float32[1] = call(%x) {body="f", stateful=true}
          subgraph @f = graph @f(%p: float32[1]) -> (%t) {
            state %s: float32[1] initial [1.0] next %t
            %t: float32[1] = add(%p, %s)
          }
        }
        """
    )
    interpreter, one = Interpreter(graph), np.ones(1, np.float32)
    assert [interpreter.run(one)[0].item() for _ in range(2)] == [2, 3]
    interpreter.reset()
    assert interpreter.run(one)[0].item() == 2


def test_calls_of_calls() -> None:
    """What an external code generator takes moves up with its caller, under a name that is free."""
    check_rewrite(
        inline,
        """
        graph @g(%x: float32[2]) -> (%a, %b) {
          %a: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=false}
          %b: float32[2] = call(%x) {body="k", composite="", compiler="npu", stateful=false}
          subgraph @f = graph @f(%p: float32[2]) -> (%v) {
            %u: float32[2] = call(%p) {body="k", composite="", compiler="npu", stateful=false}
            %v: float32[2] = call(%u) {body="h", composite="", compiler="", stateful=false}
            subgraph @k = graph @k(%q: float32[2]) -> (%w) {
              %w: float32[2] = clip(%q) {minimum=0.0, maximum=6.0}
            }
            subgraph @h = graph @h(%q: float32[2]) -> (%q) {
            }
          }
          subgraph @k = graph @k(%q: float32[2]) -> (%w) {
            %w: float32[2] = call(%q) {body="m", composite="m", compiler="", stateful=false}
            subgraph @m = graph @m(%q: float32[2]) -> (%w) {
              %w: float32[2] = clip(%q) {minimum=0.0, maximum=1.0}
            }
          }
        }
        """,
        """
        graph @g(%x: float32[2]) -> (%u, %b) {
          %u: float32[2] = call(%x) {body="k_1", composite="", compiler="npu", stateful=false}
          %b: float32[2] = call(%x) {body="k", composite="", compiler="npu", stateful=false}
          subgraph @k = graph @k(%q: float32[2]) -> (%w) {
            %w: float32[2] = call(%q) {body="m", composite="m", compiler="", stateful=false}
            subgraph @m = graph @m(%q: float32[2]) -> (%w) {
              %w: float32[2] = clip(%q) {minimum=0.0, maximum=1.0}
            }
          }
          subgraph @k_1 = graph @k(%q: float32[2]) -> (%w) {
            %w: float32[2] = clip(%q) {minimum=0.0, maximum=6.0}
          }
        }
        """,
    )


def test_external_calls_stay() -> None:
    check_declined(
        inline,
        """
        graph @g(%x: float32[2]) -> (%b) {
          %b: float32[2] = call(%x) {body="k", composite="", compiler="npu", stateful=false}
          subgraph @k = graph @k(%q: float32[2]) -> (%q) {
          }
        }
        """,
    )


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ('%b: float32[2] = call(%x) {body="k"}', "there is no subgraph @k"),
        ('%b: float32[2] = call(%x, %x) {body="f"}', "@f reads (float32[2]); the operator has (float32[2], "),
        ('%b: float32[3] = call(%x) {body="f"}', "@f returns (float32[2]); the operator has (float32[3])"),
        ('%b: float32[2] = call(%x) {body="f"}', "stateful must be true for subgraph @f"),
        (
            '%b: float32[2] = call(%x) {body="f", compiler="npu", stateful=true}',
            "@f is compiled by npu, so it must get its state as operands",
        ),
    ],
)
def test_bodies_that_do_not_fit(call: str, fault: str) -> None:
    graph = parse(
        f"""
        graph @g(%x: float32[2]) -> (%b) {{
          {call}
          subgraph @f = graph @f(%p: float32[2]) -> (%s) {{
            state %s: float32[2] initial [1.0, 2.0] next %p
          }}
        }}
        """
    )
    with pytest.raises(GraphError) as error:
        verify(graph)
    assert fault in str(error.value)
