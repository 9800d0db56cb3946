"""Colours of operators, which are equal in all drawings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from microfold.reporting.schema import ReportedLayer

# Number of style classes, `op0` and so on; all further operators share one class.
COLOURS = 6
_OTHERS = "op-others"


class Entry(Struct, frozen=True):
    """Line of the legend.

    Attributes:
        share: share of the instructions of one run, in percent; None if unknown.
    """

    colour: str
    operator: str
    layers: int
    share: float | None


class Palette:
    """Colours of the operators of a model, the most frequent ones first."""

    def __init__(self, layers: Sequence[ReportedLayer]):
        self._layers = layers
        counted = Counter(layer.op for layer in layers)
        self._colours = {op: f"op{i}" for i, (op, _) in enumerate(counted.most_common(COLOURS))}

    def of(self, layer: ReportedLayer) -> str:
        """Return the style class of a layer."""
        return self._colours.get(layer.op, _OTHERS)

    def legend(self, costs: Sequence[int | None]) -> list[Entry]:
        """Return all colours with the costs of their operators.

        Args:
            costs: costs of the layers.
        """
        known = [cost for cost in costs if cost is not None]
        total = sum(known) if len(known) == len(costs) else 0
        found: list[Entry] = []
        for colour in (*self._colours.values(), _OTHERS):
            rows = [i for i, layer in enumerate(self._layers) if self.of(layer) == colour]
            if rows:
                cost = sum(costs[i] or 0 for i in rows)
                share = 100 * cost / total if total else None
                operators = {self._layers[i].op for i in rows}
                name = operators.pop() if len(operators) == 1 else "others"
                found.append(Entry(colour, name, len(rows), share))
        return found
