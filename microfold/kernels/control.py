"""Loops and conditions among the kernels: planner and code generation see no difference.

They are no functions of the generated C but statements around its layers. Their calls stand for the memory
that these need.
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
    """Base of what runs other layers.

    Class attributes:
        function: of all its calls; there is no such function in C.
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
        """The call before its layers are placed, which its scratch is for."""
        del layer
        return KernelCall(self.function)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        """All but zeros, which are not copied."""
        arrays = [layer.array(index) for index in range(len(layer.node.inputs))]
        return tuple(index for index, array in enumerate(arrays) if array is None or np.any(array))


# Bytes of Thumb code, about: a loop or a condition, and a copy of what it carries.
STATEMENT_BYTES = 28


class LoopKernel(ControlKernel):
    """A `for` around the layers of its body; what it carries lies where its results do from the beginning.

    Args:
        instructions: estimate of all runs.
    """

    name = "loop__c"
    code = STATEMENT_BYTES
    op = Loop
    function = CFunction("", "loop__c")

    def replaces(self, layer: LayerContext) -> Sequence[tuple[int, int]]:
        return [(index, index) for index in range(len(layer.node.outputs))]


class BranchKernel(ControlKernel):
    """An `if` with the layers of one branch, and an `else` with those of the other one.

    Args:
        instructions: estimate of the longer branch.
    """

    name = "if__c"
    code = STATEMENT_BYTES
    op = If
    function = CFunction("", "if__c")
