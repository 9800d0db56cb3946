"""Variants: all implementations of a layer, with their figures, but without a rating."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

from msgspec import Struct

from microfold.ir.types import Array
from microfold.kernels.band import lowered
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.code import CodeBytes
from microfold.kernels.cost.code_rows import description_bytes
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import overlap_of
from microfold.kernels.selection.candidates import LayerCandidates

# Permission to overlap an input: the smallest distance, and whether the output may be exactly in place.
_OverlapPermission = tuple[int | None, bool]


class ArenaRequest(Struct, frozen=True):
    """All properties of a call on which the plan of the arena depends.

    Attributes:
        scratch: bytes of scratch.
        allowed_overlaps: permission of the output to overlap each data input.
        replaces: pairs of inputs and outputs that may be the same bytes.
    """

    scratch: int
    allowed_overlaps: tuple[_OverlapPermission, ...]
    replaces: tuple[tuple[int, int], ...]

    def demands_at_least(self, other: ArenaRequest) -> bool:
        """Return whether every plan for this request is also valid for another one of the same layer."""
        if self.scratch < other.scratch or self.replaces != other.replaces:
            return False
        if len(self.allowed_overlaps) != len(other.allowed_overlaps):
            return False
        return all(
            _permits_no_more(a, b) for a, b in zip(self.allowed_overlaps, other.allowed_overlaps, strict=True)
        )


def _permits_no_more(one: _OverlapPermission, other: _OverlapPermission) -> bool:
    if one in (other, (None, False)):
        return True
    return one[0] is not None and other[0] is not None and one[0] >= other[0]


class PeakMemory(Protocol):
    """Peak memory around each call."""

    def need(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Return the bytes of the smallest arena for all tensors that are live in a layer's call."""
        ...


class Variant(Struct, frozen=True, eq=False):
    """One implementation of a layer.

    Attributes:
        layer: index of the layer.
        cycles: cycles of all its calls in an inference, if several layers call the function.
        single_caller_cycles: cycles if the function is compiled for this layer alone.
        description: bytes of the layer's struct; a function that is compiled for this layer alone needs none.
        constants: bytes by contents; equal constants are in flash once.
        code: bytes of its function, and of the helpers that it calls.
        need: bytes of the smallest arena for all tensors that are live in its call.
    """

    layer: int
    kernel: Kernel
    call: KernelCall
    cycles: float
    single_caller_cycles: float
    description: int
    constants: Mapping[Hashable, int]
    code: CodeBytes
    need: int
    request: ArenaRequest

    @property
    def function(self) -> CFunction:
        return self.call.function


def variants_of(index: int, ranking: LayerCandidates, memory: PeakMemory | None = None) -> list[Variant]:
    """Return all variants that may compute a layer, in an order that is the same on every machine.

    Args:
        memory: peak memory; None if layers run others: the needs of single calls are unknown, and count as 0.
    """
    layer = ranking.layer
    needs: dict[ArenaRequest, int] = {}

    def of(kernel: Kernel, cycles: float, single_caller_cycles: float) -> Variant:
        call, constants, code, request = layer.remembered((_facts, kernel), lambda: _facts(kernel, layer))
        if request not in needs:
            needs[request] = memory.need(index, kernel, call) if memory is not None else 0
        return Variant(
            index,
            kernel,
            call,
            cycles * ranking.runs,
            single_caller_cycles * ranking.runs,
            description_bytes(call),
            constants,
            code,
            needs[request],
            request,
        )

    if ranking.fixed:
        only = ranking.candidates[0]
        return [of(only.kernel, only.cost or 0.0, only.cost or 0.0)]
    offers = [offer for candidate in ranking.candidates for offer in candidate.offers]
    return [
        of(offer.kernel, offer.cost, offer.single_caller_cost) for offer in offers if offer.failure is None
    ]


def _facts(
    kernel: Kernel, layer: LayerContext
) -> tuple[KernelCall, Mapping[Hashable, int], CodeBytes, ArenaRequest]:
    """Return the call of a variant, its constants, its code, and its request to the arena."""
    call = lowered(kernel, layer)
    constants = constants_of(kernel, layer, call)
    return call, constants, kernel.code_bytes(layer, call), _request(kernel, layer, call)


def _request(kernel: Kernel, layer: LayerContext, call: KernelCall) -> ArenaRequest:
    inputs = kernel.data_inputs(layer)
    allowed_overlaps = tuple((overlap_of(kernel, layer, i), kernel.in_place(layer, i)) for i in inputs)
    return ArenaRequest(call.scratch, allowed_overlaps, tuple(kernel.replaces(layer)))


def constants_of(kernel: Kernel, layer: LayerContext, call: KernelCall) -> Mapping[Hashable, int]:
    """Return the bytes of all constants that a call reads, by contents."""
    found: dict[Hashable, int] = {}
    for record, array in constant_arrays(kernel, layer, call):
        _, digest = layer.remembered(
            (constants_of, id(array)),
            lambda array=array: (array, blake2b(array.tobytes(), digest_size=16).digest()),
        )
        found[record, array.dtype.str, digest] = array.nbytes
    return found


def constant_arrays(kernel: Kernel, layer: LayerContext, call: KernelCall) -> Sequence[tuple[str, Array]]:
    """Return the arrays that a call reads, with their C types: packed ones, and some of the model's own."""
    own = [(constant.record, constant.array) for constant in call.constants.values()]
    plain = (layer.array(index) for index in kernel.data_inputs(layer))
    return [*own, *(("", array) for array in plain if array is not None)]
