"""Elementwise kernels of two operands for Helium, with broadcasting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import DType
from microfold.kernels.call import KernelCall, Parameter, SpecValue
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.elementwise.broadcast import BinaryKernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.mve import MveForm
from microfold.kernels.requantize import output_range


class BinaryMve(BinaryKernel):
    """Base; templates render their loops with ``elementwise/binary_mve.j2``.

    Class attributes:
        lanes: elements computed together.
        vector_instructions: estimate per vector.
    """

    features = frozenset({"mve"})
    dtype = DType.INT8
    lanes: ClassVar[int] = 4
    vector_instructions: ClassVar[float]
    run_instructions = 22.0

    def cost(self, layer: LayerContext) -> float:
        inner = self.loops(layer)[-1][0]
        runs = layer.node.outputs[0].type.size // inner
        vectors = -(-inner // self.lanes)
        each = self.vector_instructions + 1.0 * output_range.clamping(layer.node)[0]
        rest = 6.0 * (inner % self.lanes != 0)
        return runs * (vectors * each + rest + self.run_instructions)

    def vector_call(
        self,
        layer: LayerContext,
        spec: tuple[tuple[str, SpecValue], ...],
        parameters: Mapping[str, Parameter],
    ) -> KernelCall:
        """The call with the choices and fields of the loops, of their rest, and of the clamp added."""
        clamp, limits = output_range.clamping(layer.node)
        tail = self.loops(layer)[-1][0] % self.lanes != 0
        spec = (*spec, ("type", C_TYPES[self.dtype]), ("tail", tail), ("clamp", clamp))
        return self.call(layer, spec, dict(parameters) | limits)


def lane_form(multiplier: Multiplier, never_negative: bool) -> MveForm | str:
    """How lanes are multiplied in two rounding steps, or why they cannot be."""
    if multiplier.shift > 0:
        return "it multiplies by less than 1"
    return MveForm.RELU if never_negative or multiplier.shift == 0 else MveForm.PLAIN
