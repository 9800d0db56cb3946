"""Products of two computed matrices in portable C, also for fully connected layers with computed weights."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.add import plan_one
from microfold.kernels.elementwise.broadcast import broadcast_strides, loop_records, merge_axes
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.product_sum import wide_record
from microfold.kernels.requantize import output_range
from microfold.ops.accumulate import output_multipliers
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.fully_connected.fully_connected import FullyConnected

# Maximum number of loops over batches.
LOOPS = 3


class _Product(Struct, frozen=True):
    """Loops and strides of ``out[b, m, n] = sum over k of first[b, m, k] * second[b, k, n]``.

    Attributes:
        loops: loops over batches, outermost first: (size, first's step, second's step), steps in elements.
        rows, columns, depth: numbers of values of m, n and k.
        first_strides, second_strides: steps along the last two axes of each operand, in elements.
    """

    loops: list[tuple[int, ...]]
    rows: int
    columns: int
    depth: int
    first_strides: tuple[int, int]
    second_strides: tuple[int, int]


def _product(first: TensorType, second: TensorType, out: TensorType, turns: tuple[bool, bool]) -> _Product:
    strides = [
        (1, t.shape[-1]) if turn else (t.shape[-1], 1) for t, turn in zip((first, second), turns, strict=True)
    ]
    batch = out.shape[:-2]
    steps = [
        [step * t.shape[-1] * t.shape[-2] for step in broadcast_strides(t.shape[:-2], batch)]
        for t in (first, second)
    ]
    depth = first.shape[-2] if turns[0] else first.shape[-1]
    return _Product(merge_axes(batch, *steps), out.shape[-2], out.shape[-1], depth, *strides)


class _Matmul(Kernel):
    """Base class of products that compute one dot product after the other, for operands with any strides.

    The constant `loops` has three records over the batches (size, first's step, second's step). An operand
    that is broadcast has steps of 0.

    Class attributes:
        dtype: element type of both operands.
    """

    dtype: ClassVar[DType]
    fields = declare(
        Field("loops", "loops over batches; first, second: steps in the operands"),
        "rows",
        "columns",
        "depth",
        Field("first_row", "first operand: step from row to row, then step along a row"),
        "first_step",
        Field("second_step", "second operand: step along a column, then step from column to column"),
        "second_column",
        "first_zero_point",
        "second_zero_point",
        "scale",
        *output_range.LIMIT_FIELDS,
    )

    def product(self, layer: LayerContext) -> _Product:
        first, second = (v.type for v in layer.node.operands[:2])
        op = layer.node.op
        turns = (op.transpose_first, op.transpose_second) if isinstance(op, BatchMatmul) else (False, True)
        return _product(first, second, layer.node.outputs[0].type, turns)

    def supports(self, layer: LayerContext) -> str | None:
        first, second = (v.type for v in layer.node.operands[:2])
        if first.dtype is not self.dtype or second.dtype is not self.dtype:
            return (
                f"it needs {self.dtype.value} operands; they are {first.dtype.value} and {second.dtype.value}"
            )
        if layer.present(2):
            return "it does not support a bias"
        product = self.product(layer)
        if len(product.loops) > LOOPS:
            return "its operands broadcast along too many alternating axes"
        if self.dtype is DType.INT8 and product.depth >= 1 << 15:
            return f"sums of {product.depth} products might overflow"
        if second.quant is not None and second.quant.axis is not None:
            return "it needs one scale per tensor"
        return output_range.unsupported_epilogue(layer.node)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1)

    def terms(self, layer: LayerContext) -> Terms:
        product, outputs = self.product(layer), layer.node.outputs[0].type.size
        columns = outputs // product.rows
        return Terms(call=1, column=columns, output=outputs, product=outputs * product.depth)

    def call(
        self, layer: LayerContext, choice: tuple[tuple[str, SpecValue], ...], fields: dict[str, Parameter]
    ) -> KernelCall:
        product = self.product(layer)
        clamp, limits = output_range.clamping(layer.node)
        parameters: dict[str, Parameter] = {
            "loops": Constant("loops", loop_records(product.loops, LOOPS), record="mf_loop"),
            "rows": product.rows,
            "columns": product.columns,
            "depth": product.depth,
            "first_row": product.first_strides[0],
            "first_step": product.first_strides[1],
            "second_step": product.second_strides[0],
            "second_column": product.second_strides[1],
        }
        spec = (*choice, ("clamp", clamp))
        return KernelCall(
            CFunction("batch_matmul/portable.c.j2", self.name, spec, self.fields),
            parameters | fields | limits,
        )


class _MatmulFloat(_Matmul):
    """Products of float32 matrices, summed one by one; without a bias."""

    dtype = DType.FLOAT32

    def lower(self, layer: LayerContext) -> KernelCall:
        spec = (("type", "float"), ("accumulator", "float"), ("requantize", ""))
        return self.call(layer, spec, {})


class _MatmulQuantized(_Matmul):
    """Base class of products of centred elements, requantised by one multiplier for all columns."""

    def multiplier(self, layer: LayerContext) -> Multiplier:
        first, second = (v.type.quant for v in layer.node.operands[:2])
        assert first is not None and second is not None
        op = layer.node.op
        if isinstance(op, BatchMatmul):
            return op.multiplier(first, second)
        assert isinstance(op, FullyConnected) and op.out.quant is not None
        mantissas, shifts = output_multipliers(first, second, op.out.quant, 1)
        return Multiplier(int(mantissas[0]), int(shifts[0]))

    def zero_points(self, layer: LayerContext) -> dict[str, Parameter]:
        first, second = (v.type.quant for v in layer.node.operands[:2])
        assert first is not None and second is not None
        return {"first_zero_point": first.zero_point, "second_zero_point": second.zero_point}


class MatmulInt8(_MatmulQuantized):
    """Products of int8 matrices, centred at their zero points, with int32 accumulators.

    The constant `scale` is one record: (bias, multiplier, addend, shift). Fewer than 2^15 products of at most
    255^2 fit 32 bits, and `plan_requantization` proves the form for all these sums.
    """

    dtype = DType.INT8

    def lower(self, layer: LayerContext) -> KernelCall:
        out = layer.node.outputs[0].type.quant
        assert out is not None
        extent = self.product(layer).depth * 255 * 255
        low, _ = output_range.integer_bounds(layer.node)
        plan = plan_one(0, (-extent, extent), self.multiplier(layer), out.zero_point, low)
        spec = (("type", "int8_t"), ("accumulator", "int32_t"), ("requantize", plan.form.value))
        scale = Constant("scale", plan.records, record="mf_channel")
        return self.call(layer, spec, self.zero_points(layer) | {"scale": scale})


class MatmulInt16(_MatmulQuantized):
    """Products of int16 matrices, with 64-bit accumulators.

    The constant `scale` is one record: (0, multiplier of 16 bits, 0, shift), with the reference's single
    rounding (`wide_record`). `supports` checks that the form can apply the shift.
    """

    dtype = DType.INT16

    def lower(self, layer: LayerContext) -> KernelCall:
        record = wide_record(0, self.multiplier(layer))
        spec = (("type", "int16_t"), ("accumulator", "int64_t"), ("requantize", "wide"))
        scale = Constant("scale", record, record="mf_channel")
        return self.call(layer, spec, self.zero_points(layer) | {"scale": scale})

    def supports(self, layer: LayerContext) -> str | None:
        reason = super().supports(layer)
        if reason is None and not -47 <= self.multiplier(layer).shift <= 14:
            return "the multiplier is too large"
        return reason


@register
class BatchMatmulFloat(_MatmulFloat):
    """Batch matrix multiplication of float32, in which either operand may be transposed."""

    name = "f32_batch_matmul__c"
    op = BatchMatmul


@register
class FullyConnectedFloatMatmul(_MatmulFloat):
    """Fully connected layer of float32 with computed weights: the second operand is transposed."""

    name = "f32_fully_connected__c_matmul"
    op = FullyConnected


@register
class BatchMatmulInt8(MatmulInt8):
    """Batch matrix multiplication of int8, in which either operand may be transposed."""

    name = "s8_batch_matmul__c"
    op = BatchMatmul


@register
class FullyConnectedInt8Matmul(MatmulInt8):
    """Fully connected layer of int8 with computed weights, with the multiplier of `output_multipliers`."""

    name = "s8_fully_connected__c_matmul"
    op = FullyConnected


@register
class BatchMatmulInt16(MatmulInt16):
    """Batch matrix multiplication of int16, in which either operand may be transposed."""

    name = "s16_batch_matmul__c"
    op = BatchMatmul
