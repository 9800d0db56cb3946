"""Importer of the custom operator ethos-u."""

from __future__ import annotations

import math

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.raw import RawTensor
from microfold.ir.types import DType, TensorType
from microfold.ops.external.ethos_u import EthosU

_ETHOS_U = "CUSTOM ethos-u"
# Options that Vela writes: the number 1 as a flexbuffer.
_ETHOS_U_OPTIONS = b"\x01\x04\x01"
# Indices of weights (optional), arena, fast scratch, and the first of the model's inputs.
_WEIGHTS, _ARENA, _FAST, _FIRST = 1, 2, 3, 4


@imports(_ETHOS_U, scratch=(_WEIGHTS, _ARENA, _FAST))
def ethos_u(context: OperatorContext) -> None:
    """Import a command stream that Vela has compiled for an Ethos-U.

    Order of the inputs:
    https://github.com/tensorflow/tflite-micro/blob/main/tensorflow/lite/micro/kernels/ethos_u/ethosu.cc
    """
    if context.raw.custom_options() != _ETHOS_U_OPTIONS:
        raise Unsupported(
            f"its options must be {_ETHOS_U_OPTIONS!r}; they are {context.raw.custom_options()!r}"
        )
    commands = context.input(0)
    if commands not in context.scope.constants:
        raise Unsupported("its command stream must be constant")
    weights = None
    if math.prod(context.memory(_WEIGHTS).shape):
        if context.raw.inputs[_WEIGHTS] not in context.scope.values:
            raise Unsupported("its weights must be constant")
        weights = context.input(_WEIGHTS)
    arena, fast = context.memory(_ARENA), context.memory(_FAST)
    if fast.arena_offset not in (None, arena.arena_offset):
        raise Unsupported("its fast scratch must begin where its arena does; it begins elsewhere")
    tensors = context.scope.tensors
    inputs = [context.input(index) for index in range(_FIRST, context.input_count)]
    results = tuple(context.declared_type(index) for index in range(len(context.raw.outputs)))
    if not inputs:
        raise Unsupported("it has no input")
    given = [tensors[index] for index in context.raw.inputs[_FIRST:]]
    input_offsets = tuple(_offset(tensor, arena) for tensor in given)
    output_offsets = tuple(_offset(tensors[index], arena) for index in context.raw.outputs)
    ends = [_size(arena)]
    ends += [offset + value.type.nbytes for value, offset in zip(inputs, input_offsets, strict=True)]
    ends += [offset + result.nbytes for result, offset in zip(results, output_offsets, strict=True)]
    op = EthosU(results, max(ends), _size(fast), input_offsets, output_offsets)
    names = [context.name(index) for index in range(len(results))]
    context.finish(*context.emit(op, commands, weights, *inputs, names=names))


def _size(tensor: RawTensor) -> int:
    if min(tensor.shape, default=0) < 0:
        raise Unsupported(f"{tensor.name!r} must have a known shape; it is {list(tensor.shape)}")
    return TensorType(tensor.dtype or DType.UINT8, tensor.shape).nbytes


def _offset(tensor: RawTensor, arena: RawTensor) -> int:
    """Return the offset of a tensor from the start of the command stream's arena, in bytes."""
    if tensor.arena_offset is None or arena.arena_offset is None:
        raise Unsupported(
            f"{tensor.name!r} must be in the file's memory plan (metadata OfflineMemoryAllocation)",
            "pass the file as Vela has written it",
        )
    return tensor.arena_offset - arena.arena_offset
