"""Addition and subtraction with DSP instructions: a table for one operand, a factor for the other."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec import Struct

from microfold.ir.types import Array, DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.broadcast import BinaryKernel
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.linear_form import all_results
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.sub import Sub

# The result is (table[a] + b * factor) >> SHIFT. Before saturation, its magnitude may reach 2^(31 - SHIFT).
SHIFTS = (22, 20, 18)
_FAR = np.int64(1) << 40  # larger than any sum


class TableSplit(Struct, frozen=True, eq=False):
    """Constants with ``op(a, b) == clamp((table[a + 128] + b * factor) >> shift)`` for all a and b.

    Attributes:
        swapped: whether a is the second operand.
    """

    table: Array
    factor: int
    shift: int
    swapped: bool


@lru_cache(maxsize=256)
def find_split(
    op: Add | Sub, first: TensorType, second: TensorType, limits: tuple[int, int]
) -> TableSplit | None:
    """Find constants that reproduce the reference for all 65,536 pairs of operands; None if none are found.

    Args:
        first, second: int8 types of any shape.
        limits: smallest and largest result after clamping.
    """
    exact = all_results(op, first, second, limits)
    assert op.out.quant is not None
    assert first.quant is not None
    assert second.quant is not None
    scales = (first.quant.scale / op.out.quant.scale, second.quant.scale / op.out.quant.scale)
    sign = -1 if isinstance(op, Sub) else 1
    for shift in SHIFTS:
        for swapped in (False, True):
            slope = scales[0] if swapped else sign * scales[1]
            table = _fit(exact.T if swapped else exact, slope, shift, limits)
            if table is not None:
                return TableSplit(*table, shift, swapped)
    return None


def _fit(exact: Array, slope: float, shift: int, limits: tuple[int, int]) -> tuple[Array, int] | None:
    """Return table and factor for results [a, b] that change by about `slope` with b; None if none fit."""
    unit = 1 << shift
    # The nearest factors come first, then slightly larger ones, because the reference rounds halves away from
    # zero.
    ideal = round(slope * unit)
    outward = [ideal + (1 if slope > 0 else -1) * (abs(ideal) >> k) for k in range(10, 17)]
    # Rows `a` that excluded other factors. They mostly exclude the next factors also.
    obstacles: list[int] = []
    for factor in dict.fromkeys([ideal, *(ideal + d for n in range(1, 9) for d in (n, -n)), *outward]):
        low, high = _entries(exact[obstacles], factor, unit, limits)
        if bool(np.any(low > high)):
            continue
        low, high = _entries(exact, factor, unit, limits)
        if bool(np.any(low > high)):
            obstacles.append(int((low - high).argmax()))
            continue
        middle = np.where(low == -_FAR, high, np.where(high == _FAR, low, (low + high) // 2))
        extreme = np.abs(middle).max() + 128 * abs(factor)
        if extreme < 1 << 31 and bool(np.all(np.abs(middle) < _FAR)):
            return middle.astype(np.int32), factor
    return None


def _entries(exact: Array, factor: int, unit: int, limits: tuple[int, int]) -> tuple[Array, Array]:
    """Return the smallest and largest table entry for each row of results [a, b]; smallest > largest: none.

    ``entry + b * factor`` must be in ``[exact * unit, (exact + 1) * unit)``, or beyond if the result is
    clamped.
    """
    products = np.arange(-128, 128, dtype=np.int64) * factor
    low = np.where(exact == limits[0], -_FAR, exact * unit - products).max(axis=1)
    high = np.where(exact == limits[1], _FAR, (exact + 1) * unit - 1 - products).min(axis=1)
    return low, high


class _SumDsp(BinaryKernel):
    """``(table[a] + b * factor) >> shift``, saturated: a load, a multiply-accumulate and a shift per element.

    Each iteration reads four elements before it writes them. The constant `table` has an int32 result for
    each value of one operand from -128 to 127, which includes rounding and zero point. `find_split` has
    checked table and factor against the reference for all 65,536 pairs of operands.
    """

    features = frozenset({"dsp"})
    trades = frozenset({ResourceTradeoff.TABLE})
    dtype = DType.INT8
    fields = declare(
        Field("table", "entries for the operand a, from -128 on"),
        Field("factor", "factor of the operand b"),
        "length",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = super().supports(layer)
        if reason is not None:
            return reason
        first, second = layer.node.operands[:2]
        if first.type.shape != second.type.shape:
            return "it does not broadcast"
        return None if self._split(layer) is not None else "no table reproduces the reference's results"

    def terms(self, layer: LayerContext) -> Terms:
        size, (clamp, _) = layer.node.outputs[0].type.size, output_range.clamping(layer.node)
        return Terms(call=1, element=size, clamped=size * clamp)

    def lower(self, layer: LayerContext) -> KernelCall:
        split = self._split(layer)
        assert split is not None
        limits = output_range.integer_bounds(layer.node)
        clamp = limits != DType.INT8.range
        spec = (("shift", split.shift), ("swapped", split.swapped), ("clamp", clamp))
        parameters: dict[str, Parameter] = {
            "table": Constant("table", split.table),
            "factor": split.factor,
            "length": layer.node.outputs[0].type.size,
        }
        if clamp:
            parameters |= {"output_minimum": limits[0], "output_maximum": limits[1]}
        return KernelCall(
            CFunction("elementwise/add_table_dsp.c.j2", self.name, spec, self.fields), parameters
        )

    def _split(self, layer: LayerContext) -> TableSplit | None:
        op = layer.node.op
        assert isinstance(op, Add | Sub)
        first, second = (v.type.with_shape(()) for v in layer.node.operands[:2])
        return find_split(op, first, second, output_range.integer_bounds(layer.node))


@register
class AddDsp(_SumDsp):
    """Sums of int8; `find_split` chooses the operand for the table so that an exact factor exists."""

    name = "s8_add__dsp_table"
    op = Add


@register
class SubDsp(_SumDsp):
    """Differences of int8; the factor of the second operand, or the slope of its table, is negative."""

    name = "s8_sub__dsp_table"
    op = Sub
