"""Estimated cost of calls, given the number of callers of each function.

C compilers specialise a function that a single layer calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext


class Callers:
    """Number of layers that call each function.

    Args:
        calls: calls of all layers.
    """

    def __init__(self, calls: Iterable[KernelCall]):
        self._layers = Counter(call.function for call in calls)

    def instructions(self, kernel: Kernel, layer: LayerContext, call: KernelCall) -> float:
        """Return the estimated instructions of one of the calls."""
        return kernel.single_caller_cost(layer) if self._is_only(call) else kernel.cost(layer)

    def cycles(self, kernel: Kernel, layer: LayerContext, call: KernelCall) -> float:
        """Return the estimated cycles of one of the calls; measurements are ignored."""
        return kernel.single_caller_cycles(layer) if self._is_only(call) else kernel.cycles(layer)

    def _is_only(self, call: KernelCall) -> bool:
        return self._layers[call.function] == 1
