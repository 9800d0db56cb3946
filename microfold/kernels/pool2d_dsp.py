"""Pooling for cores with DSP instructions: four channels in a word."""

from __future__ import annotations

from microfold.ir.types import DType
from microfold.kernels import epilogue
from microfold.kernels.kernel import Call, Function, Kernel, Site, SpecValue, register
from microfold.kernels.overlap import window_overlap
from microfold.kernels.pool2d import pool_parameters, pool_types, unsupported_pool
from microfold.ops.pool2d import AveragePool2D, MaxPool2D

# So many int8 values cannot leave 16 bits: 256 * -128 = -2^15.
MAX_COUNT = 256


class _Pool2DDsp(Kernel):
    kind: str
    features = frozenset({"dsp"})
    # Estimated instructions for four channels: per tap, per output pixel.
    per_tap: float
    per_output: float

    def supports(self, site: Site) -> str | None:
        reason = unsupported_pool(site, DType.INT8)
        if reason is not None:
            return reason
        channels = site.node.outputs[0].type.shape[3]
        return f"it needs at least 4 channels; there are {channels}" if channels < 4 else None

    def cost(self, site: Site) -> float:
        _, out, window = pool_types(site)
        batch, rows, columns, channels = out.shape
        taps = window.size[0] * window.size[1]
        return batch * rows * columns * (35 + -(-channels // 4) * (self.per_tap * taps + self.per_output))

    def overlap(self, site: Site, index: int) -> int | None:
        x, out, window = pool_types(site)
        return window_overlap(x, out, window, 1, reads_first=False)

    def lower(self, site: Site) -> Call:
        low, high = epilogue.integer_bounds(site.node)
        parameters = pool_parameters(site) | {"output_minimum": low, "output_maximum": high}
        spec: tuple[tuple[str, SpecValue], ...] = (("kind", self.kind),)
        if self.kind == "max":
            spec = (*spec, ("clamp", (low, high) != DType.INT8.range))
        return Call(Function("pool2d/dsp.c.j2", self.name, spec), parameters)


@register
class AveragePool2DDsp(_Pool2DDsp):
    """Sums in 16 bits."""

    name = "s8_average_pool2d__dsp"
    op = AveragePool2D
    kind = "average"
    per_tap = 5.5
    per_output = 60

    def supports(self, site: Site) -> str | None:
        _, _, window = pool_types(site)
        count = window.size[0] * window.size[1]
        if count > MAX_COUNT:
            return f"it sums at most {MAX_COUNT} elements; the window has {count}"
        return super().supports(site)


@register
class MaxPool2DDsp(_Pool2DDsp):
    name = "s8_max_pool2d__dsp"
    op = MaxPool2D
    kind = "max"
    per_tap = 5.5
    per_output = 25
