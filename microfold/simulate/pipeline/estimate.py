"""Cycles of executed blocks on a core's pipeline.

For each predecessor, a block is issued after that predecessor and the most frequent block before it. The
costs of branches are added. The branch predictor is assumed to predict the more frequent direction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from microfold.simulate.pipeline.disassembly import Disassembly
from microfold.simulate.pipeline.instruction import Instruction
from microfold.simulate.pipeline.limit import least_cycles
from microfold.simulate.pipeline.scoreboard import cycles_behind
from microfold.simulate.trace import Key, LayerCounts, Trace
from microfold.target.pipeline import Pipeline

# Number of predecessors distinguished per block. The others are assigned the mean of these.
_LANES_OF_ISSUE = 3


def on_pipeline(layers: Sequence[LayerCounts], image: Disassembly, pipeline: Pipeline) -> Trace:
    """Return instructions and cycles of a run on a pipeline."""
    estimate = _Estimate(layers, image, pipeline)
    return Trace(
        tuple(layer.instructions for layer in layers),
        tuple(round(estimate.cycles(layer)) for layer in layers),
        tuple(estimate.least(layer) for layer in layers),
    )


class _Estimate:
    def __init__(self, layers: Sequence[LayerCounts], image: Disassembly, pipeline: Pipeline):
        self._pipeline = pipeline
        numbers = {key: number for layer in layers for key, (number, _, _) in layer.blocks.items()}
        self._blocks = {key: image.block(key[0], number) for key, number in numbers.items()}
        before: dict[Key, dict[Key, int]] = defaultdict(lambda: defaultdict(int))
        for layer in layers:
            for (start, end), count in layer.edges.items():
                before[end][start] += count
        # Most frequent predecessor of each block.
        self._usual = {key: max(ways, key=lambda way: (ways[way], way)) for key, ways in before.items()}
        self._behind = cache(self._cycles_behind)

    def cycles(self, layer: LayerCounts) -> float:
        ways: dict[Key, list[tuple[int, Key]]] = defaultdict(list)
        leaving: dict[Key, list[tuple[int, Key]]] = defaultdict(list)
        for (start, end), count in layer.edges.items():
            ways[end].append((count, start))
            leaving[start].append((count, end))
        return sum(
            self._issued(key, count, ways[key]) + self._branches(key, count, leaving[key])
            for key, (_, count, _) in layer.blocks.items()
        )

    def least(self, layer: LayerCounts) -> int:
        blocks = ((self._blocks[key], count) for key, (_, count, _) in layer.blocks.items())
        return least_cycles(self._pipeline, ((each, count) for block, count in blocks for each in block))

    def _issued(self, key: Key, count: int, ways: list[tuple[int, Key]]) -> float:
        most = sorted(ways, reverse=True)[:_LANES_OF_ISSUE]
        if not most:
            return float(self._behind(None, key) * count)
        total = sum(number for number, _ in most)
        return sum(self._behind(start, key) * number for number, start in most) * count / total

    def _cycles_behind(self, start: Key | None, key: Key) -> int:
        chain: list[Key] = []
        if start is not None:
            chain = [start]
            if start in self._usual:
                chain.insert(0, self._usual[start])
        before = [self._blocks.get(each, ()) for each in chain]
        return cycles_behind(self._pipeline, before, self._blocks[key])

    def _branches(self, key: Key, count: int, leaving: list[tuple[int, Key]]) -> float:
        """Return the cycles of the branch at the end of a block, in addition to its issue."""
        block = self._blocks[key]
        if not block or not _branches(block[-1]):
            return 0.0
        last = block[-1]
        taken = sum(number for number, following in leaving if following[0] != last.end)
        missed = 0
        if last.name == "branch_conditional":
            missed = min(taken, sum(number for number, _ in leaving) - taken)
        elif last.name != "branch":
            missed = max(0, count - max((number for number, _ in leaving), default=count))
        return float(self._pipeline.taken * taken + self._pipeline.missed * missed)


def _branches(instruction: Instruction) -> bool:
    return instruction.name.startswith("branch") or "pc" in instruction.writes
