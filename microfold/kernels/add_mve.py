"""Addition and subtraction kernels for Helium."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from microfold.ir.types import Array, DType, Tensor
from microfold.kernels import epilogue
from microfold.kernels.kernel import Call, Function, Kernel, Parameter, Site, register
from microfold.ops.add import Add
from microfold.ops.sub import Sub

_LARGEST_SHIFT = 24
_SEARCH = 4  # how far from the rounded factors others are tried


class LinearForm(NamedTuple):
    """``output = clamp((first * factors[0] + second * factors[1] + offset) >> shift)`` in int32."""

    factors: tuple[int, int]
    offset: int
    shift: int


def find_linear_form(site: Site) -> LinearForm | None:
    """A linear form that gives the reference's result for each of the 65,536 pairs of int8 operands.

    The reference rounds three times, at about 20 bits below the output's unit, so that most additions have
    one. None if there is none among the candidates, e.g. where results often lie half-way between integers
    and have both signs.
    """
    first, second = (v.type.quant for v in site.node.operands[:2])
    out = site.node.outputs[0].type
    assert first is not None and second is not None and out.quant is not None
    want = _all_results(site)
    low, high = epilogue.integer_bounds(site.node)
    real = first.scale / out.quant.scale, second.scale / out.quant.scale
    if isinstance(site.node.op, Sub):
        real = real[0], -real[1]
    near = sorted(range(-_SEARCH, _SEARCH + 1), key=abs)
    for shift in range(_LARGEST_SHIFT, 7, -1):
        centre = [round(value * (1 << shift)) for value in real]
        if 128 * (abs(centre[0]) + abs(centre[1])) >= 1 << 30:
            continue
        for factors in ((centre[0] + i, centre[1] + j) for i in near for j in near):
            offset = _fit_offset(want, factors, shift, low, high)
            if offset is not None:
                return LinearForm(factors, offset, shift)
    return None


def _all_results(site: Site) -> Array:
    """int64 [256, 256]: the reference's result for operands -128 .. 127."""
    first, second = (v.type for v in site.node.operands[:2])
    x = np.arange(-128, 128, dtype=np.int8)
    operands = (
        Tensor(first.with_shape((256, 1)), x.reshape(256, 1)),
        Tensor(second.with_shape((1, 256)), x.reshape(1, 256)),
    )
    low, high = epilogue.integer_bounds(site.node)
    assert isinstance(site.node.op, Add | Sub)
    return np.clip(site.node.op.reference(*operands).astype(np.int64), low, high)


def _fit_offset(want: Array, factors: tuple[int, int], shift: int, low: int, high: int) -> int | None:
    """The middle of the offsets that give all wanted results, with sums in int32; None if there are none."""
    x = np.arange(-128, 128, dtype=np.int64)
    sums = x[:, None] * factors[0] + x[None, :] * factors[1]
    # Clamping leaves the results at the bounds open to one side.
    at_least = np.where(want > low, want << shift, np.iinfo(np.int32).min) - sums
    below = np.where(want < high, (want + 1) << shift, 1 << 31) - sums
    first, last = int(at_least.max()), int(below.min()) - 1
    return (first + last) // 2 if first <= last else None


class _SumMve(Kernel):
    """Two multiply-accumulates and a shift, where a linear form is found that is exact for all operands."""

    features = frozenset({"mve"})

    def supports(self, site: Site) -> str | None:
        first, second = (v.type for v in site.node.operands[:2])
        if first.dtype is not DType.INT8:
            return f"it needs int8 operands; they are {first.dtype.value}"
        if first.shape != second.shape:
            return "it needs operands of the same shape"
        if reason := epilogue.unsupported_epilogue(site.node):
            return reason
        if find_linear_form(site) is None:
            return "no linear form gives the reference's result for all operands"
        return None

    def cost(self, site: Site) -> float:
        return site.node.outputs[0].type.size / 4 * 11 + 30

    def data_inputs(self, site: Site) -> tuple[int, ...]:
        return (0, 1)

    def overlap(self, site: Site, index: int) -> int | None:
        return 0

    def lower(self, site: Site) -> Call:
        form = find_linear_form(site)
        assert form is not None
        out = site.node.outputs[0].type
        low, high = epilogue.integer_bounds(site.node)
        clamp = (low, high) != out.dtype.range
        parameters: dict[str, Parameter] = {
            "length": out.size,
            "first_factor": form.factors[0],
            "second_factor": form.factors[1],
            "offset": form.offset,
            "shift": form.shift,
        }
        if clamp:
            parameters |= {"output_minimum": low, "output_maximum": high}
        spec = (("clamp", clamp), ("tail", out.size % 4 != 0))
        return Call(Function("add/mve.c.j2", self.name, spec), parameters)


@register
class AddMve(_SumMve):
    name = "s8_add__mve"
    op = Add


@register
class SubMve(_SumMve):
    name = "s8_sub__mve"
    op = Sub
