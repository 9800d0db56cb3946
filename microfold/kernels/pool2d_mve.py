"""Pooling kernels for Helium."""

from __future__ import annotations

from microfold.ir.types import DType
from microfold.kernels import epilogue
from microfold.kernels.kernel import Call, Function, Kernel, Site, register
from microfold.kernels.overlap import window_overlap
from microfold.kernels.pool2d import pool_parameters, pool_types, unsupported_pool
from microfold.ops.pool2d import AveragePool2D, MaxPool2D

# Sums of so many int8 fit in int16.
_NARROW_COUNT = 255
# Up to so many, the division by multiplication is exact: 2 * 128.5 * count * 2 * count < 2^32.
_LARGEST_COUNT = 2890


class _Pool2DMve(Kernel):
    features = frozenset({"mve"})
    kind: str
    block: float
    """Instructions of a vector of outputs, besides its window."""

    def supports(self, site: Site) -> str | None:
        return unsupported_pool(site, DType.INT8)

    def cost(self, site: Site) -> float:
        _, out, window = pool_types(site)
        pixels = out.size // out.shape[3]
        blocks = -(-out.shape[3] // self.lanes(site))
        return pixels * (blocks * (6 * window.size[0] * (window.size[1] + 1) + self.block) + 15)

    def lanes(self, site: Site) -> int:
        """Channels computed together."""
        raise NotImplementedError

    def overlap(self, site: Site, index: int) -> int | None:
        x, out, window = pool_types(site)
        # Channels are written before the next ones of the same pixel are read.
        return window_overlap(x, out, window, 1, reads_first=False)

    def lower(self, site: Site) -> Call:
        _, out, _ = pool_types(site)
        low, high = epilogue.integer_bounds(site.node)
        clamp = (low, high) != out.dtype.range
        parameters = pool_parameters(site)
        if clamp:
            parameters |= {"output_minimum": low, "output_maximum": high}
        spec = (("kind", self.kind), ("wide", self.lanes(site) == 4), ("clamp", clamp))
        return Call(Function("pool2d/mve.c.j2", self.name, spec), parameters)


@register
class AveragePool2DMve(_Pool2DMve):
    """Sums 8 channels in int16, or 4 in int32 if the window is large; divides by multiplication."""

    name = "s8_average_pool2d__mve"
    op = AveragePool2D
    kind = "average"
    block = 45

    def supports(self, site: Site) -> str | None:
        _, _, window = pool_types(site)
        count = window.size[0] * window.size[1]
        if count > _LARGEST_COUNT:
            return f"it divides by up to {_LARGEST_COUNT}; the window has {count} elements"
        return super().supports(site)

    def lanes(self, site: Site) -> int:
        _, _, window = pool_types(site)
        return 8 if window.size[0] * window.size[1] <= _NARROW_COUNT else 4


@register
class MaxPool2DMve(_Pool2DMve):
    """16 channels at a time."""

    name = "s8_max_pool2d__mve"
    op = MaxPool2D
    kind = "max"
    block = 20

    def lanes(self, site: Site) -> int:
        return 16
