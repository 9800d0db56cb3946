"""Logarithms of energies."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp

SEGMENT_BITS = 7
FRACTION_BITS = 16


@register
class SignalFilterBankLog(SignalOp, frozen=True):
    """Natural logarithms of uint32 [N] after a shift to the left, times `output_scale`, as int16 [N].

    The logarithm has 16 fractional bits before it is scaled, and the result is at most 32767. The logarithms
    of 0 and 1 are 0. The logarithm to base 2 is interpolated between entries of `correction_table`. Source:
    ``signal/src/log.cc`` and ``filter_bank_log.cc`` of tflite-micro.
    """

    name: ClassVar[str] = "signal_filter_bank_log"

    input_correction_bits: int
    output_scale: int

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype is DType.UINT32 and x.rank == 1, f"signal_filter_bank_log: needs uint32 [N]; it is {x}"
        )
        require(
            0 <= self.input_correction_bits < 32,
            f"{self.name}: input_correction_bits must be in [0, 32); it is {self.input_correction_bits}",
        )
        return TensorType(DType.INT16, x.shape)

    def reference(self, x: Tensor) -> Array:
        scaled = (x.data << np.uint32(self.input_correction_bits)).astype(np.uint32).astype(np.int64)
        above = np.maximum(scaled, 2)
        # Exact, because doubles represent these integers exactly.
        whole = np.frexp(above.astype(np.float64))[1].astype(np.int64) - 1
        # Bits below the 16th fractional bit are cut off.
        fraction = ((above - (1 << whole)) << FRACTION_BITS) >> whole
        segment_width = FRACTION_BITS - SEGMENT_BITS
        segment = fraction >> segment_width
        table = correction_table().astype(np.int64)
        slope = table[segment + 1] - table[segment]
        inside = fraction - (segment << segment_width)
        log2 = (whole << FRACTION_BITS) + fraction + table[segment] + ((slope * inside) >> FRACTION_BITS)
        rounding = 1 << (FRACTION_BITS - 1)
        natural = (LN_2 * log2 + rounding) >> FRACTION_BITS
        # The product wraps around at 32 bits.
        result = ((self.output_scale * natural + rounding) & 0xFFFFFFFF) >> FRACTION_BITS
        return np.where(scaled > 1, np.minimum(result, DType.INT16.range[1]), 0).astype(np.int16)

    def operations(self, x: TensorType) -> int:
        return 20 * x.size


LN_2 = 45426  # ln(2), in units of 2^-16


def correction_table() -> Array:
    """Return ``log2(1 + k / 128) - k / 128`` in units of 2^-16, uint16 [129]."""
    k = np.arange((1 << SEGMENT_BITS) + 1) / (1 << SEGMENT_BITS)
    return np.rint((np.log2(1 + k) - k) * (1 << FRACTION_BITS)).astype(np.uint16)
