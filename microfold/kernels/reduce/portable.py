"""Reductions in portable C: mean, sum, maximum, minimum and product over any axes."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op
from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.add import plan_one
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.elementwise.broadcast import contiguous_strides, loop_records, merge_axes
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, define, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin, ReduceProd

# Number of loops over kept axes, and over reduced axes, in the template.
LOOPS = 3
# Plain integers wrap around. C leaves that undefined for signed types, so the code uses unsigned ones.
_WRAPPING = "value = (int{bits}_t)((uint{bits}_t)value {sign} (uint{bits}_t)element)"


class Reduction(Kernel):
    """Reduction with loops over the kept axes around loops over the reduced ones, element by element.

    The constants `kept` and `reduced` have three loop records each (size, step in the input, 0), preceded by
    loops of size 1. Axes with matching steps share one loop, see `merge_axes`.

    Class attributes:
        dtypes: supported element types.
        combine: C statement that combines `element` with `value`.
        start: C expression of the initial value; if it is empty, the first element.
    """

    dtypes: ClassVar[tuple[DType, ...]]
    combine: ClassVar[str]
    start: ClassVar[str] = ""
    fields = declare(
        Field("kept", "loops over the output; first: step in the input"),
        "reduced",
        "count",
        "scale",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype not in self.dtypes:
            return f"it does not support {x.dtype.value}"
        if max(len(loops) for loops in self.loops(layer)) > LOOPS:
            return "kept and reduced axes alternate too often"
        return output_range.unsupported_epilogue(layer.node)

    def terms(self, layer: LayerContext) -> Terms:
        x, outputs = layer.node.operands[0].type, layer.node.outputs[0].type.size
        return Terms({"call": 1, "output": outputs, f"{x.dtype.value}_element": x.size})

    def loops(self, layer: LayerContext) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """Return loops (size, step) over the kept axes, and over the reduced axes."""
        x = layer.node.operands[0].type
        op = layer.node.op
        assert isinstance(op, Mean | Sum | ReduceMax | ReduceMin | ReduceProd)
        strides = contiguous_strides(x.shape)
        kept = [axis for axis in range(x.rank) if axis not in op.axes]
        return tuple(  # type: ignore[return-value]
            merge_axes([x.shape[a] for a in axes], [strides[a] for a in axes]) for axes in (kept, op.axes)
        )

    def lower(self, layer: LayerContext) -> KernelCall:
        x = layer.node.operands[0].type
        # Boolean elements have no range, and no epilogue is fused into their operators.
        truths = x.dtype is DType.BOOL
        clamp, limits = (False, {}) if truths else output_range.clamping(layer.node)
        finish, fields = self.finish(layer)
        spec = (
            ("type", C_TYPES[x.dtype]),
            ("accumulator", self.accumulator(x.dtype)),
            ("combine", self.combine),
            ("start", self.start),
            ("finish", finish),
            ("clamp", clamp),
        )
        return KernelCall(
            CFunction("reduce/portable.c.j2", self.name, spec, self.fields),
            self.loop_constants(layer) | fields | limits,
        )

    def loop_constants(self, layer: LayerContext) -> dict[str, Parameter]:
        """Return the fields `kept` and `reduced`."""
        records = (loop_records([(*loop, 0) for loop in loops], LOOPS) for loops in self.loops(layer))
        return {
            name: Constant(name, record, record="mf_loop")
            for name, record in zip(("kept", "reduced"), records, strict=True)
        }

    def accumulator(self, dtype: DType) -> str:
        return C_TYPES[dtype]

    def finish(self, layer: LayerContext) -> tuple[str, dict[str, Parameter]]:
        """Return the last step for the combined value (empty, ``divide``, requantisation), and fields."""
        return "", {}


class _FloatOrPlain(Reduction):
    """Sums that start with 0 and are not requantised."""

    dtypes = (DType.FLOAT32, DType.INT32, DType.INT64)
    start = "0"
    combine = "value += element"


class QuantizedSum(Reduction):
    """Base class of int8 and int16 sums in int32, requantised by one multiplier.

    The constant `scale` is one record: (bias, multiplier, addend, shift). The bias subtracts the zero points
    of all addends. `supports` checks that the sum is below 2^30, and `plan_requantization` proves the form
    for all sums.
    """

    dtypes = (DType.INT8, DType.INT16)
    start = "layer->scale->bias"
    combine = "value += element"

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        reason = super().supports(layer)
        if reason is None and self._count(layer) * x.dtype.range[1] >= 1 << 30:
            return f"the sum of {self._count(layer)} elements might overflow"
        return reason

    def accumulator(self, dtype: DType) -> str:
        return "int32_t"

    def _count(self, layer: LayerContext) -> int:
        assert isinstance(layer.node.op, Mean | Sum)
        return layer.node.op.count(layer.node.operands[0].type)

    def finish(self, layer: LayerContext) -> tuple[str, dict[str, Parameter]]:
        x, out, count = layer.node.operands[0].type, layer.node.outputs[0].type, self._count(layer)
        op = layer.node.op
        assert isinstance(op, Mean | Sum) and x.quant is not None and out.quant is not None
        bounds = (
            (x.dtype.range[0] - x.quant.zero_point) * count,
            (x.dtype.range[1] - x.quant.zero_point) * count,
        )
        low, _ = output_range.integer_bounds(layer.node)
        multiplier = op.multiplier(x.quant, count)
        plan = plan_one(-x.quant.zero_point * count, bounds, multiplier, out.quant.zero_point, low)
        return plan.form.value, {"scale": Constant("scale", plan.records, record="mf_channel")}


@register
class MeanQuantized(QuantizedSum):
    """Means of int8 and int16; the multiplier includes the division by the count."""

    name = "mean__c"
    op = Mean


@register
class SumQuantized(QuantizedSum):
    """Sums of int8 and int16; the multiplier is the ratio of the scales."""

    name = "sum__c"
    op = Sum


@register
class MeanFloat(_FloatOrPlain):
    """Means of float32: a sum in the order of the elements, divided by the count."""

    name = "f32_mean__c"
    op = Mean
    dtypes = (DType.FLOAT32,)
    start = "0.0f"

    def finish(self, layer: LayerContext) -> tuple[str, dict[str, Parameter]]:
        assert isinstance(layer.node.op, Mean)
        return "divide", {"count": float(layer.node.op.count(layer.node.operands[0].type))}


class _MeanPlain(Reduction):
    """Means of plain integers: a 64-bit sum, divided by the count and truncated towards zero."""

    op = Mean
    start = "0"

    def accumulator(self, dtype: DType) -> str:
        return "int64_t"

    def finish(self, layer: LayerContext) -> tuple[str, dict[str, Parameter]]:
        assert isinstance(layer.node.op, Mean)
        return "divide", {"count": layer.node.op.count(layer.node.operands[0].type)}


@register
class MeanInt32(_MeanPlain):
    """Means of int32; their sums fit 64 bits."""

    name = "s32_mean__c"
    like = "s32_sum__c"
    dtypes = (DType.INT32,)
    combine = "value += element"


@register
class MeanInt64(_MeanPlain):
    """Means of int64; their sums wrap around."""

    name = "s64_mean__c"
    like = "s32_sum__c"
    dtypes = (DType.INT64,)
    combine = _WRAPPING.format(bits=64, sign="+")


def _define(name: str, operator: type[Op], dtypes: tuple[DType, ...], start: str, combine: str) -> None:
    doc = f"{operator.__name__} of {', '.join(t.value for t in dtypes)}: ``{combine}``."
    define(Reduction, name, operator, doc, dtypes=dtypes, start=start, combine=combine)


_ANY = (*(DType.BOOL, DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32),)
_define("f32_sum__c", Sum, (DType.FLOAT32,), "0.0f", "value += element")
_define("s32_sum__c", Sum, (DType.INT32,), "0", _WRAPPING.format(bits=32, sign="+"))
_define("s64_sum__c", Sum, (DType.INT64,), "0", _WRAPPING.format(bits=64, sign="+"))
_define("f32_reduce_prod__c", ReduceProd, (DType.FLOAT32,), "1.0f", "value *= element")
_define("s32_reduce_prod__c", ReduceProd, (DType.INT32,), "1", _WRAPPING.format(bits=32, sign="*"))
_define("s64_reduce_prod__c", ReduceProd, (DType.INT64,), "1", _WRAPPING.format(bits=64, sign="*"))
_define("reduce_max__c", ReduceMax, _ANY, "", "value = element > value ? element : value")
_define("reduce_min__c", ReduceMin, _ANY, "", "value = element < value ? element : value")
