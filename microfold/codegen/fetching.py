"""Constants that are copied into the arena before their layer runs: where each lies there.

While a layer computes, the firmware copies the constants of the next one, by DMA, say. So those of two layers
are in the arena at a time: a double buffer, whose parts the planner places like scratch.
"""

from __future__ import annotations

from collections.abc import Mapping

from microfold.plan.overlap import align
from microfold.program import ConstantKey, Layer, Program, constant_key


def fetched_offsets(program: Program, layer: Layer) -> Mapping[ConstantKey, tuple[int, int]]:
    """Where a layer's constants lie in its part of the arena, and their bytes; only those that are copied."""
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
    """Bytes of these in all."""
    offsets = fetched_offsets(program, layer).values()
    return max((align(offset + size, program.options.align) for offset, size in offsets), default=0)
