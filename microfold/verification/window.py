"""Reference for programs whose runs take only new frames: the network over its whole window."""

from __future__ import annotations

import numpy as np

from microfold.ir.interpret import Interpreter
from microfold.ir.types import Array
from microfold.program import Program
from microfold.transform.requested.slide_window import Sliding
from microfold.transform.requested.sliding.build import zeros


class WindowReference:
    """Reference network over the window of the last frames, initially zeros."""

    def __init__(self, sliding: Sliding):
        self._sliding = sliding
        self._interpreter = Interpreter(sliding.window)
        (frames,) = sliding.window.inputs
        self._frames = zeros(frames)

    def run(self, new: Array) -> tuple[Array, ...]:
        """Append new frames to the window, and return the outputs."""
        axis = self._sliding.axis
        old = np.delete(self._frames, range(self._sliding.step), axis)
        self._frames = np.concatenate([old, new], axis)
        return self._interpreter.run(self._frames)


def runs_to_make(program: Program, runs: int) -> int:
    """Return the number of runs plus the warm-up runs, after which windows have no initial zeros."""
    return runs + (program.sliding.warmup_runs if program.sliding is not None else 0)
