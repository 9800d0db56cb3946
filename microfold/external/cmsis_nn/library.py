"""CMSIS-NN library, and the requirements of its functions for all layers.

Source: public headers ``arm_nnfunctions.h`` and ``arm_nn_types.h`` of release 7.0.0
(https://github.com/ARM-software/CMSIS-NN/tree/v7.0.0/Include).
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array, TensorType
from microfold.kernels.call import Constant, Library, Parameter
from microfold.kernels.fields import declare
from microfold.kernels.requantize import output_range

# 7.0.0 is the first release with arm_fully_connected_wrapper_s8; code does not link with older ones.
CMSIS_NN = Library(
    "CMSIS-NN 7.0.0 or later", ("arm_nnfunctions.h",), prelude="external/cmsis_nn/prelude.c.j2"
)

# Some functions store extents in 16 bits.
MAX_EXTENT = (1 << 15) - 1


def unsupported_extents(*types: TensorType) -> str | None:
    """Return a reason if an extent does not fit the variables of the functions, else None."""
    largest = max((extent for t in types for extent in t.shape), default=0)
    return f"extents must be below {MAX_EXTENT + 1}; got {largest}" if largest > MAX_EXTENT else None


def unsupported_shifts(shifts: Array, mantissas: Array, bounds: tuple[Array, Array]) -> str | None:
    """Return a reason if the left shift before the multiplication can overflow int32, else None."""
    reach = np.maximum(np.abs(bounds[0]), np.abs(bounds[1])) << np.maximum(shifts.astype(np.int64), 0)
    if int(reach.max()) >= 1 << 31:
        return f"accumulators, shifted left by up to {int(shifts.max())} bits, must stay in 32 bits"
    if int(shifts.min()) < -31 or int(mantissas.min()) < 0:
        return "multipliers must be positive, and shifts at least -31"
    return None


CHANNEL_FIELDS = declare("bias", "multipliers", "shifts")
OUTPUT_FIELDS = declare("input_offset", "output_offset", *output_range.LIMIT_FIELDS)


def requantization(
    bias: Array | None, mantissas: Array, shifts: Array, *, multiple: int = 1
) -> dict[str, Parameter]:
    """Return the values of `CHANNEL_FIELDS`, constants of the channels; a missing bias is zero.

    Args:
        multiple: repeat the last elements up to a multiple of this, because vector loads may read beyond the
            end.
    """
    given = np.zeros(len(mantissas), np.int32) if bias is None else bias.astype(np.int32)
    return {
        name: Constant(name, np.pad(array.astype(np.int32), (0, -len(array) % multiple), mode="edge"))
        for name, array in (("bias", given), ("multipliers", mantissas), ("shifts", shifts))
    }
