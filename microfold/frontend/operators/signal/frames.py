"""Importers of signal operators that keep samples between runs."""

from __future__ import annotations

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.operators.signal import options
from microfold.frontend.operators.signal.spectrum import require_type
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType, TensorType
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.select import Select
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.signal.frames import SignalFrames
from microfold.ops.signal.overlap_add import SignalOverlapAdd

_COUNT = TensorType(DType.INT32, ())


def _samples(context: OperatorContext) -> Value:
    x = context.input(0)
    if x.type.rank == 0:
        raise Unsupported(f"its input must have samples along an axis; it is {x.type}")
    return x


def _framed(context: OperatorContext, x: Value, kept: int, op: SignalFrames) -> Value:
    """Return frames of samples. Each run keeps the last `kept` samples for the next one."""
    name = context.name()
    if kept:
        type = TensorType(DType.INT16, (*x.type.shape[:-1], kept))
        state = context.state(f"{name}_samples", type)
        before = state.read(type)
        frames, after = context.emit(op, x, before, names=[f"{name}_frames", f"{name}_samples_next"])
        state.current = context.kept(after, before)
        return frames
    # Each frame is the start of its step.
    shape = (*x.type.shape[:-1], x.type.shape[-1] // op.frame_step, op.frame_step)
    (steps,) = context.emit(Reshape(shape), x, names=[f"{name}_steps"])
    size = (*shape[:-1], op.frame_size)
    return context.emit(StridedSlice((0,) * len(shape), size, (1,) * len(shape)), steps)[0]


def _number(context: OperatorContext, value: int, what: str) -> Value:
    return context.add_constant(np.array(value, np.int32), f"{context.name()}_{what}")


def _always(context: OperatorContext) -> Value:
    return context.add_constant(np.array(True), context.name(1))


@imports("CUSTOM SignalFramer")
def signal_framer(context: OperatorContext) -> None:
    """Import the operator. Its second output tells whether all frames are complete.

    An incomplete frame starts with zeros. A frame is complete once as many steps have been received as it
    spans. With `prefill`, the samples before the first run count as zeros, and all frames are complete.
    """
    given = options.read(context, "frame_size", "frame_step", "prefill")
    x, size, step = _samples(context), given["frame_size"], given["frame_step"]
    result, valid = options.names(context, 2)
    if size < 1 or step < 1 or x.type.shape[-1] % step or (given["prefill"] and step > size):
        raise Unsupported(
            "it must have a positive frame_size, and a frame_step that divides the number of samples and, "
            f"with prefill, does not exceed frame_size; they are {size} and {step} for {x.type}"
        )
    steps = -(-size // step)
    kept = size - step if given["prefill"] else (steps - 1) * step
    frames = _framed(context, x, kept, SignalFrames(size, step))
    del result
    # Number of earlier runs after which the first frame of a run is complete.
    wait = 0 if given["prefill"] else -(-(steps - 1) // (x.type.shape[-1] // step))
    if wait == 0:
        options.finish(context, frames, _always(context))
        return
    calls = context.state(f"{context.name()}_calls", _COUNT)
    before, last = calls.read(_COUNT), _number(context, wait, "wait")
    (full,) = context.emit(Compare("greater_equal"), before, last, names=[valid])
    one = _number(context, 1, "one")
    (more,) = context.emit(Add(ElementType(DType.INT32)), before, one, names=[f"{context.name()}_calls_more"])
    (after,) = context.emit(Minimum(), more, last, names=[f"{context.name()}_calls_next"])
    calls.current = context.kept(after, before)
    options.finish(context, frames, full)


@imports("CUSTOM SignalStacker")
def signal_stacker(context: OperatorContext) -> None:
    """Concatenate the last frames. The first frame also stands for the missing frames before it.

    The second output tells whether a step is complete. The first output is computed in every run.
    """
    given = options.read(
        context, "num_channels", "stacker_left_context", "stacker_right_context", "stacker_step"
    )
    x, channels, step = _samples(context), given["num_channels"], given["stacker_step"]
    left, right = given["stacker_left_context"], given["stacker_right_context"]
    _, valid = options.names(context, 2)
    frames = left + right + 1
    if min(left, right) < 0 or not 0 < step <= frames or x.type.shape != (channels,):
        raise Unsupported(
            f"it must have num_channels elements, non-negative contexts, and a step in [1, {frames}], the "
            f"frames in its output; it has {channels} channels for {x.type}, contexts {left} and {right}, "
            f"step {step}"
        )
    if frames == 1:
        options.finish(context, *context.emit(Reshape(x.type.shape), x), _always(context))
        return
    stacked = _stacked(context, x, frames, repeats=left > 0)
    if right == 0 and step == 1:
        options.finish(context, stacked, _always(context))
        return
    # Number of frames since the first one, minus the frames consumed by steps.
    ahead = context.state(f"{context.name()}_ahead", _COUNT)
    before = ahead.read(_COUNT)
    (full,) = context.emit(
        Compare("greater_equal"), before, _number(context, right, "right_context"), names=[valid]
    )
    stays, moves = _number(context, 1, "one"), _number(context, 1 - step, "step")
    (change,) = context.emit(Select(), full, moves, stays, names=[f"{context.name()}_ahead_change"])
    names = [f"{context.name()}_ahead_next"]
    (after,) = context.emit(Add(ElementType(DType.INT32)), before, change, names=names)
    ahead.current = context.kept(after, before)
    options.finish(context, stacked, full)


def _stacked(context: OperatorContext, x: Value, frames: int, repeats: bool) -> Value:
    """Return the concatenated last frames. With `repeats`, the first frame also fills the earlier ones."""
    name, channels = context.name(), x.type.size
    rows = TensorType(DType.INT16, (frames - 1, channels))
    state = context.state(f"{name}_frames", rows)
    older = before = state.read(rows)
    if repeats:
        truth = TensorType(DType.BOOL, ())
        started = context.state(f"{name}_started", truth)
        row = context.emit(Reshape((1, channels)), x, names=[f"{name}_first"])[0]
        (older,) = context.emit(Select(), started.read(truth), before, row, names=[f"{name}_older"])
        true = context.add_constant(np.array(True), f"{name}_true")
        started.current = context.kept(true, started.read(truth))
    (flat,) = context.emit(Reshape((rows.size,)), older, names=[f"{name}_older_flat"])
    op = SignalFrames(frames * channels, channels)
    stacked, after = context.emit(op, x, flat, names=[f"{name}_stacked", f"{name}_newer_flat"])
    (newer,) = context.emit(Reshape(rows.shape), after, names=[f"{name}_frames_next"])
    state.current = context.kept(newer, before)
    return context.emit(Reshape((frames * channels,)), stacked)[0]


@imports("CUSTOM SignalDelay")
def signal_delay(context: OperatorContext) -> None:
    x, delay = _samples(context), options.read(context, "delay_length")["delay_length"]
    if delay < 0:
        raise Unsupported(f"delay_length must not be negative; it is {delay}")
    size = x.type.shape[-1]
    frames = _framed(context, x, delay, SignalFrames(size, size))
    options.finish(context, *context.emit(Reshape(x.type.shape), frames))


@imports("CUSTOM SignalOverlapAdd")
def signal_overlap_add(context: OperatorContext) -> None:
    given = options.read(context, "T", "frame_step")
    x, step = context.input(0), given["frame_step"]
    require_type(context, given["T"])
    if x.type.rank < 2 or not 0 < step <= x.type.shape[-1]:
        raise Unsupported(
            f"it must have frames [..., n, size] and a frame_step in [1, size]; they are {x.type} and {step}"
        )
    *outer, count, size = x.type.shape
    if step == size:
        options.finish(context, *context.emit(Reshape((*outer, count * size)), x))
        return
    type = TensorType(x.type.dtype, (*outer, size - step))
    sums = context.state(f"{context.name()}_sums", type)
    before = sums.read(type)
    result, after = context.emit(
        SignalOverlapAdd(step), x, before, names=[*options.names(context, 1), f"{context.name()}_sums_next"]
    )
    sums.current = context.kept(after, before)
    options.finish(context, result)
