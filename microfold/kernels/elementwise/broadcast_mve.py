"""Elementwise kernels of two operands with Helium, with broadcasting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import DType
from microfold.kernels.call import KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms, vector_terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.elementwise.broadcast import BinaryKernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.mve import MveForm
from microfold.kernels.requantize import output_range


def run_terms(loops: Sequence[tuple[int, ...]], size: int, lanes: int) -> Terms:
    """Count the code parts of the runs of the innermost loop; an operand with step 0 is loaded only once."""
    length, *steps = loops[-1]
    runs = size // length
    read = runs * -(-length // lanes) * sum(step != 0 for step in steps)
    kind = "tail_read" if length % lanes else "whole_read"
    return Terms({"run": runs, kind: read}) + vector_terms(runs, length, lanes)


class BinaryMve(BinaryKernel):
    """Base class of Helium kernels of two operands; ``elementwise/binary_mve.j2`` renders their loops.

    Class attributes:
        lanes: elements per vector.
    """

    features = frozenset({"mve"})
    dtype = DType.INT8
    lanes: ClassVar[int] = 4

    def terms(self, layer: LayerContext) -> Terms:
        clamp, _ = output_range.clamping(layer.node)
        size = layer.node.outputs[0].type.size
        inner = self.loops(layer)[-1][0]
        clamped = size // inner * -(-inner // self.lanes) * clamp
        return Terms(call=1, clamped=clamped) + run_terms(self.loops(layer), size, self.lanes)

    def vector_call(
        self,
        layer: LayerContext,
        spec: tuple[tuple[str, SpecValue], ...],
        parameters: Mapping[str, Parameter],
    ) -> KernelCall:
        """Return the call, with choices and fields of the loops, of their tail, and of the clamp added."""
        clamp, limits = output_range.clamping(layer.node)
        tail = self.loops(layer)[-1][0] % self.lanes != 0
        spec = (*spec, ("type", C_TYPES[self.dtype]), ("tail", tail), ("clamp", clamp))
        return self.call(layer, spec, dict(parameters) | limits)


def lane_form(multiplier: Multiplier, never_negative: bool) -> MveForm | str:
    """Return the form in which lanes are multiplied in two rounding steps, or why none is exact."""
    if multiplier.shift > 0:
        return "it supports only multipliers below 1"
    return MveForm.RELU if never_negative or multiplier.shift == 0 else MveForm.PLAIN
