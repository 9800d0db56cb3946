"""Sparse fully connected layers, which store and multiply only blocks of weights that are not zero."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.fully_connected.portable import (
    centred_weights,
    fully_connected_types,
    unit_records,
    unsupported_integer_fully_connected,
)
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.sparse_fully_connected import WIDTH, SparseFullyConnected, cover

# Largest distance in inputs from one block to the next that fits uint8.
LARGEST_STEP = 255


def pack_blocks(matrix: Array) -> tuple[Array, Array, Array]:
    """Pack a matrix [M, K] as its blocks that are not zero, unit after unit.

    Returns:
        The weights of the blocks [blocks, width]; the steps, uint8 [blocks]; and the number of blocks of each
        unit, uint16 [M]. A step is the distance in inputs from the start of the block before, or from the
        first input for the first block of a unit. Blocks of zeros split steps that are too long.
    """
    units, columns, weights = cover(matrix)
    first = np.diff(units, prepend=-1) != 0
    steps = np.where(first, columns, np.diff(columns, prepend=0))
    between = np.maximum(steps - 1, 0) // LARGEST_STEP
    places = np.repeat(np.arange(units.size), between)
    lengths = np.insert(steps - between * LARGEST_STEP, places, LARGEST_STEP)
    counts = np.bincount(np.insert(units, places, units[places]), minlength=matrix.shape[0])
    return np.insert(weights, places, 0, axis=0), lengths.astype(np.uint8), counts.astype(np.uint16)


def unpack_blocks(weights: Array, steps: Array, counts: Array, inputs: int) -> Array:
    """Return the matrix [M, K] that `pack_blocks` has packed."""
    matrix = np.zeros((counts.size, inputs), weights.dtype)
    at = iter(zip(weights, steps, strict=True))
    for row, count in zip(matrix, counts, strict=True):
        column = 0
        for _ in range(count):
            block, step = next(at)
            column += int(step)
            row[column : column + block.size] += block
    return matrix


class _Sparse(Kernel):
    """Base class of sparse kernels, which compute unit after unit over the blocks that are not zero.

    `weights` is [blocks][width]. `steps` has the distance from one block to the next in inputs, as bytes.
    `counts` has the number of blocks of each unit. See `pack_blocks`.
    """

    template: ClassVar[str] = "fully_connected/sparse.c.j2"

    fields = declare(
        "weights",
        Field("steps", "inputs from one block of a unit to the next"),
        Field("counts", "blocks of each unit"),
        "channels",
        *MATRIX_FIELDS,
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        weights = layer.array(1)
        assert weights is not None
        return Terms(call=1, block=x.shape[0] * cover(weights).units.size, output=out.size)

    def unsupported_size(self, layer: LayerContext) -> str | None:
        """Return the reason if a unit may have more blocks than 16 bits can count, else None."""
        inputs = fully_connected_types(layer)[0].shape[1]
        return f"it counts at most 65535 blocks; {inputs} inputs may have more" if inputs >= 1 << 18 else None

    def call(
        self,
        layer: LayerContext,
        choice: tuple[tuple[str, SpecValue], ...],
        channels: Constant,
        matrix: Array,
    ) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        weights, steps, counts = pack_blocks(matrix)
        if not steps.size:
            # C has no empty arrays, so add a block that no unit counts.
            weights, steps = np.zeros((1, weights.shape[1]), weights.dtype), np.zeros(1, np.uint8)
        clamp, limits = output_range.proved_clamping(layer)
        spec = (*choice, ("width", weights.shape[1]), ("clamp", clamp))
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", weights),
            "steps": Constant("steps", steps),
            "counts": Constant("counts", counts),
            "channels": channels,
            **matrix_parameters(x, out),
        }
        fields = describe(self.fields, weights=f"weights of each block of {weights.shape[1]} inputs")
        return KernelCall(CFunction(self.template, self.name, spec, fields), parameters | limits)


class _SparseInt8(_Sparse):
    """Base class of int8 kernels with int32 sums. `channels` has records (bias, multiplier, addend, shift).

    `unsupported_integer_fully_connected` checks that sums fit. `unit_records` proves the form. The omitted
    weights are zero and do not change the sums.
    """

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_integer_fully_connected(layer) or self.unsupported_size(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        plan, _ = unit_records(layer)
        choice = (("type", "int8_t"), ("requantize", plan.form.value))
        channels = Constant("channels", plan.records, record="mf_channel")
        return self.call(layer, choice, channels, centred_weights(layer).astype(np.int8))


@register
class SparseFullyConnectedInt8(_SparseInt8):
    """Sparse int8 fully connected layer with blocks of 1x4 weights, in portable C."""

    name = "s8_sparse_fully_connected__c_1x4"
    op = SparseFullyConnected


@register
class SparseFullyConnectedDsp(_SparseInt8):
    """Sparse int8 fully connected layer with two products per SMLAD.

    Inputs and weights are widened on the fly. The kernel reads whole blocks, so that `supports` requires at
    least as many inputs as a block has.
    """

    name = "s8_sparse_fully_connected__dsp_1x4"
    op = SparseFullyConnected
    features = frozenset({"dsp"})
    template = "fully_connected/sparse_dsp.c.j2"

    def supports(self, layer: LayerContext) -> str | None:
        inputs = fully_connected_types(layer)[0].shape[1]
        return super().supports(layer) or (
            f"it requires at least {WIDTH} inputs; got {inputs}" if inputs < WIDTH else None
        )


@register
class SparseFullyConnectedFloat(_Sparse):
    """Sparse float32 fully connected layer in the reference's order, without products by zero."""

    name = "f32_sparse_fully_connected__c_1x4"
    op = SparseFullyConnected
    fields = describe(_Sparse.fields, channels="biases")

    def supports(self, layer: LayerContext) -> str | None:
        reason = product_sum.unsupported_constants(layer, DType.FLOAT32, DType.FLOAT32)
        return reason or self.unsupported_size(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        weights = layer.array(1)
        assert weights is not None
        channels = Constant("biases", product_sum.float_biases(layer, weights.shape[0]))
        return self.call(layer, (("type", "float"), ("requantize", "")), channels, weights)
