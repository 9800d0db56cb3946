"""What runs that take new frames only are held against: the network over its whole window."""

from __future__ import annotations

import numpy as np

from microfold.ir.interpret import Interpreter
from microfold.ir.types import Array
from microfold.program import Program
from microfold.transform.requested.slide_window import Sliding
from microfold.transform.requested.sliding.build import zeros


class WindowReference:
    """The network over a window, run over the last frames that were given; before those there were zeros."""

    def __init__(self, sliding: Sliding):
        self._sliding = sliding
        self._interpreter = Interpreter(sliding.window)
        (frames,) = sliding.window.inputs
        self._frames = zeros(frames)

    def run(self, new: Array) -> tuple[Array, ...]:
        """The outputs once these frames have come."""
        axis = self._sliding.axis
        old = np.delete(self._frames, range(self._sliding.step), axis)
        self._frames = np.concatenate([old, new], axis)
        return self._interpreter.run(self._frames)


def runs_to_make(program: Program, runs: int) -> int:
    """So many, and before them those until windows hold no frames from before the first run."""
    return runs + (program.sliding.warmup_runs if program.sliding is not None else 0)
