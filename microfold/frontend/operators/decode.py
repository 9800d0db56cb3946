"""Importer of TFLM_DECODE, TFLM's custom operator that decompresses constants, at compile time."""

from __future__ import annotations

import numpy as np

from microfold.frontend.compression import decoded
from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.ir.node import Value
from microfold.ir.types import Array, ElementType


@imports("CUSTOM TFLM_DECODE")
def decode(context: OperatorContext) -> None:
    """Decode the constants of all outputs. Each output has two inputs: encoded data and ancillary data."""
    outputs = context.raw.outputs
    if context.input_count != 2 * len(outputs):
        raise Unsupported(f"it must have two inputs for each output; it has {context.input_count}")
    values: list[Value] = []
    for index, output in enumerate(outputs):
        raw = context.scope.tensors[output]
        if raw.dtype is None or raw.quant_fault or min(raw.shape, default=1) < 1:
            reason = raw.quant_fault or f"it is {raw.type_name}{list(raw.shape)}"
            raise Unsupported(f"{raw.name!r} must have a known type and shape; {reason}")
        data = [_bytes(context, 2 * index + k, what) for k, what in enumerate(("encoded", "ancillary"))]
        array = decoded(data[0], data[1], raw.dtype, raw.shape, raw.quant)
        values.append(context.add_constant(array, raw.name, ElementType(raw.dtype, raw.quant)))
    context.finish(*values)


def _bytes(context: OperatorContext, index: int, what: str) -> Array:
    return np.frombuffer(context.constant(index, f"{what} data").tobytes(), np.uint8)
