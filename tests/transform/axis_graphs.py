"""Text of small float32 graphs for tests of scales and shifts."""

from __future__ import annotations

from textwrap import dedent

from msgspec import Struct

from microfold.ir.text import parse, to_text
from microfold.passes.context import Decision
from microfold.passes.kinds import Pass
from tests.transform.check import check_declined, check_rewrite

WINDOW = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}"
SAME = "{strides=(1, 1), dilations=(1, 1), padding=((1, 1), (1, 1))}"
RELU = "{minimum=0.0, maximum=inf}"
TOLERANCE = 1e-6


def text(nodes: str, inputs: str, outputs: str) -> str:
    """A graph in its printed form, so that constants may be written where they are convenient."""
    lines = "".join(f"  {line}\n" for line in dedent(nodes).strip().splitlines())
    return to_text(parse(f"graph @g({inputs}) -> ({outputs}) {{\n{lines}}}\n"))


class Case(Struct, frozen=True):
    """What a pass does to graphs of the same inputs."""

    step: Pass
    inputs: str = "%x: float32[1,3,3,2]"

    def becomes(self, before: str, after: str, outputs: str = "%y") -> list[Decision]:
        """The pass makes one of the other; names of constants follow those of the nodes' operands."""
        texts = [text(nodes, self.inputs, outputs) for nodes in (before, after)]
        return check_rewrite(self.step, *texts, tolerance=TOLERANCE)

    def stays(self, nodes: str, reason: str, outputs: str = "%y") -> None:
        """The pass leaves it as it is, for that reason."""
        check_declined(self.step, text(nodes, self.inputs, outputs), reason)
