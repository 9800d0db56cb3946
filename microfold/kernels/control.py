"""Kernels of loops and conditions, so that planner and code generator handle them like other layers.

In the generated C they are statements around other layers, not functions. Their calls represent the memory
of these layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.control.control_flow import If
from microfold.ops.control.loop import Loop


class ControlKernel(Kernel):
    """Base class of kernels that run other layers.

    Class attributes:
        function: placeholder in all calls of the kernel; the generated C has no function of that name.
    """

    function: ClassVar[CFunction]

    def __init__(self, instructions: float):
        self.instructions = instructions

    def supports(self, layer: LayerContext) -> str | None:
        del layer
        return None

    def cost(self, layer: LayerContext) -> float:
        del layer
        return self.instructions

    def cycles(self, layer: LayerContext) -> float:
        return self.cost(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        """Return the call without scratch: only its inner layers use scratch, and they have no plan yet."""
        del layer
        return KernelCall(self.function)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        """Return the indices of all inputs except constant zeros, which are not copied."""
        arrays = [layer.array(index) for index in range(len(layer.node.inputs))]
        return tuple(index for index, array in enumerate(arrays) if array is None or np.any(array))


# Estimated Thumb code of a loop or a condition with one copy of a carried value, in bytes.
STATEMENT_BYTES = 28


class LoopKernel(ControlKernel):
    """A `for` loop around the layers of its body. Loop-carried values share the storage of its results.

    Args:
        instructions: estimated instructions of all iterations.
    """

    name = "loop__c"
    code = STATEMENT_BYTES
    op = Loop
    function = CFunction("", "loop__c")

    def replaces(self, layer: LayerContext) -> Sequence[tuple[int, int]]:
        return [(index, index) for index in range(len(layer.node.outputs))]


class BranchKernel(ControlKernel):
    """An `if` with the layers of one branch, and an `else` with the layers of the other one.

    Args:
        instructions: estimated instructions of the longer branch.
    """

    name = "if__c"
    code = STATEMENT_BYTES
    op = If
    function = CFunction("", "if__c")
