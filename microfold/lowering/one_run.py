"""Check that networks can share an arena between runs: each run reads only data that it has written.

The check shares no code with the planner: it replays the calls over a map of the arena's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from microfold.errors import GraphError
from microfold.program import Block, BranchPlan, Buffer, Layer, LoopPlan, Move, Program


def check_one_run(program: Program) -> None:
    """Verify that a run reads no data in the arena that an earlier run or another network has written.

    Streamed layers have their own checker (`plan.stream.check`).

    Raises:
        GraphError: lists the values that are read before they are written.
    """
    replay = _Replay(program.arena.size)
    replay.write(program.inputs)
    replay.layers(program.layers)
    replay.read("the end of the run", [slot.next for slot in program.state if slot.next is not None])
    replay.read("the caller", program.outputs)
    if replay.faults:
        raise GraphError("a run must not depend on old contents of the arena:\n" + "\n".join(replay.faults))


class _Replay:
    """Replay of a run, with a map of the arena's bytes that it has written."""

    def __init__(self, size: int):
        self.written = np.zeros(size, np.bool_)
        self.faults: list[str] = []

    def layers(self, layers: Sequence[Layer]) -> None:
        for layer in layers:
            if isinstance(layer.control, LoopPlan):
                self._loop(layer.name, layer.control)
            elif isinstance(layer.control, BranchPlan):
                self._branch(layer.name, layer.control)
            else:
                if layer.rows is None:
                    self.read(layer.name, layer.inputs)
                self.write(layer.outputs)

    def read(self, who: str, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            if buffer.region == "arena" and not self.written[_extent(buffer)].all():
                self.faults.append(f"  - {who} reads {buffer.value.name!r} before the run has written it")

    def write(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            if buffer.region == "arena":
                self.written[_extent(buffer)] = True

    def _moves(self, who: str, moves: Sequence[Move]) -> None:
        for move in moves:
            self.read(who, [] if move.zeros else [move.source])
            self.write([move.target])

    def _block(self, who: str, block: Block) -> None:
        self.layers(block.layers)
        self._moves(who, block.moves)

    def _loop(self, who: str, loop: LoopPlan) -> None:
        self._moves(who, loop.begin)
        if loop.condition is not None:
            self.layers(loop.condition.layers)
        if loop.decision is not None:
            self.read(who, [loop.decision])
        # The first iteration of the body reads the same buffers as later ones.
        self._block(who, loop.body)

    def _branch(self, who: str, branch: BranchPlan) -> None:
        self.read(who, [branch.decision])
        before = self.written.copy()
        self._block(who, branch.then)
        after, self.written = self.written, before
        self._block(who, branch.otherwise)
        self.written &= after


def _extent(buffer: Buffer) -> slice:
    return slice(buffer.offset, buffer.offset + buffer.type.nbytes)
