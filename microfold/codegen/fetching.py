"""Prefetched constants: their layout in the part of the arena into which they are copied.

While a layer computes, the firmware copies the constants of the next layer, for example by DMA. The arena
then holds the constants of two layers: a double buffer, whose parts the planner places like scratch memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from microfold.plan.overlap import align
from microfold.program import ConstantKey, Layer, Program, constant_key


def fetched_offsets(program: Program, layer: Layer) -> Mapping[ConstantKey, tuple[int, int]]:
    """Return offset and size in bytes of each prefetched constant in the layer's part of the arena."""
    regions = program.regions
    if regions is None:
        return {}
    found: dict[ConstantKey, tuple[int, int]] = {}
    end = 0
    for constant in layer.call.constants.values():
        key = constant_key(constant.array, constant.record)
        home = regions.constants.get(key)
        if home is not None and home.prefetch and key not in found:
            found[key] = (end, constant.array.nbytes)
            end = align(end + constant.array.nbytes, program.options.align)
    return found


def fetched_bytes(program: Program, layer: Layer) -> int:
    """Return the size in the arena of a layer's prefetched constants, in bytes."""
    offsets = fetched_offsets(program, layer).values()
    return max((align(offset + size, program.options.align) for offset, size in offsets), default=0)
