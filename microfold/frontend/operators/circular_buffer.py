"""Importer of TFLM's custom operator CIRCULAR_BUFFER, which stores the last inputs of a streaming network.

Source: https://github.com/tensorflow/tflite-micro/blob/main/tensorflow/lite/micro/kernels/circular_buffer_common.cc
and circular_buffer.cc in the same folder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.ir.limits import MAX_INTEGER
from microfold.ir.types import DType, ElementType, TensorType
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.select import Select
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.strided_slice import StridedSlice

_INT32 = TensorType(DType.INT32, ())


@imports("CUSTOM CIRCULAR_BUFFER")
def circular_buffer(context: OperatorContext) -> None:
    """Shift the buffer by one slot in every run that reaches it, and store the input in the newest slot.

    In TFLM, later operators run only once in `cycles_max` runs. Here they run every time, but their state
    changes only in those runs.
    """
    x, result = context.input(0), context.declared_type()
    fits = x.type.rank == result.rank == 4 and x.type.shape == (1, 1, *result.shape[2:])
    if not fits or result.shape[0] != 1 or x.type.element != result.element or x.type.dtype is not DType.INT8:
        raise Unsupported(
            f"it must be int8 [1,1,W,C] in [1,N,W,C], quantised alike; they are {x.type} and {result}"
        )
    if len(context.raw.outputs) != 1:
        raise Unsupported(f"it must have 1 output; it has {len(context.raw.outputs)}")
    cycles = _cycles(context, result)
    buffer = context.state(f"{context.name()}_before", result)
    newest = x
    if result.shape[1] > 1:
        kept = (1, result.shape[1] - 1, *result.shape[2:])
        op = StridedSlice((0, 1, 0, 0), kept, (1, 1, 1, 1))
        (older,) = context.emit(op, buffer.read(result), names=[f"{context.name()}_older"])
        (newest,) = context.emit(Concatenate(1), older, x)
    buffer.current = context.kept(newest, buffer.read(result))
    context.finish(newest)
    if cycles > 1:
        _run_once_in(context, cycles)


def _run_once_in(context: OperatorContext, cycles: int) -> None:
    """Let later operators change their state only in every `cycles`-th run that reaches this point."""
    name, scope = context.name(), context.scope
    counter = context.state(f"{name}_calls", _INT32)
    one, zero, last = (
        context.add_constant(np.array(n, np.int32), f"{name}_{what}")
        for n, what in ((1, "one"), (0, "none"), (cycles, "cycles"))
    )
    before = counter.read(_INT32)
    (count,) = context.emit(Add(ElementType(DType.INT32)), before, one, names=[f"{name}_count"])
    (full,) = context.emit(Compare("equal"), count, last, names=[f"{name}_full"])
    (after,) = context.emit(Select(), full, zero, count, names=[f"{name}_calls_next"])
    counter.current = context.kept(after, before)
    if scope.runs is not None:
        (full,) = context.emit(Minimum(), scope.runs, full, names=[f"{name}_runs"])
    scope.runs = full


def _cycles(context: OperatorContext, result: TensorType) -> int:
    """Return n if later operators run once in n runs."""
    data = context.raw.custom_options()
    cycles = _first_integer(data) if data else 0
    if cycles > MAX_INTEGER:
        raise Unsupported(f"cycles_max must be at most {MAX_INTEGER}; it is {cycles}")
    if cycles > 0:
        return cycles
    # If the file leaves it open, TFLM uses rules made for certain streaming networks.
    scope = context.scope
    scope.open_cycles += 1
    _, slots, width, channels = result.shape
    if slots in (5, 13, 25) or (scope.open_cycles == 5 and (width, channels) == (2, 96)):
        scope.open_cycles = 0
        return 1
    return 2


def _first_integer(data: bytes) -> int:
    """Return the first value of a flexbuffer map. TFLM reads these options by position."""
    try:
        root: Any = flexbuffers.GetRoot(bytearray(data))
        return int(root.AsMap.Values[0].AsInt)
    except Exception as error:
        raise Unsupported(
            f"its options must be a flexbuffer map with cycles_max; they are {data!r}"
        ) from error
