"""Whether weights in 4 bits, or float32 weights as float16, are worth the time that unpacking takes.

Packing saves flash, and takes code; it pays where a model has enough weights that fit.
"""

from __future__ import annotations

from collections.abc import Mapping

from microfold.kernels.kernel import KERNELS, PACKED, Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.policy import Case

# Bytes of code that a kernel for 4 bits takes: less is not saved by packing.
FOUR_BIT_CODE = 1024
# How much slower than with float32 a layer may be, unless each byte saved costs at most one instruction. What
# converts in registers takes 5 to 15 % longer, which halved weights are worth to whoever does not ask for
# speed alone; without a floating-point unit it is twice, which is worth it where size counts alone.
SLOWEST: Mapping[str, float] = {"size": 2.0, "balanced": 1.15}
# Bytes of code that conversions of float16 take, and that another kernel of an operator takes besides.
CONVERSION_CODE, KERNEL_CODE = 256, 768
# A multiply-add of floating-point units, cycles, where a core's table does not say:
# Cortex-M4 Technical Reference Manual (Arm DDI 0439), 7.2.3.
_MULTIPLY_ADD = 3


def four_bits(case: Case) -> str | None:
    """Why the weights of a layer stay bytes; None if they are packed."""
    if case.policy.level != "balanced":
        return None
    saved = case.policy.model.four_bit_sizes[type(case.layer.node.op)] // 2
    if saved < FOUR_BIT_CODE:
        return f"4 bits for each weight save {saved} bytes; its code takes as much"
    weights = case.layer.node.operands[1]
    if weights in case.policy.model.expanded_weights:
        return f"its {weights.type.size} weights are few for so many outputs: they stay bytes"
    return None


def half_floats(case: Case) -> str | None:
    """Why the weights of a layer stay float32; None if they are packed."""
    slowest = SLOWEST.get(case.policy.level)
    if slowest is None:
        return None
    kernel, layer = case.kernel, case.layer
    saved, everywhere = case.policy.model.half_savings(kernel.op)
    # Where layers with other weights remain, two kernels are needed for one.
    room = CONVERSION_CODE + (0 if everywhere else KERNEL_CODE)
    if saved < room:
        return f"float16 weights save {saved} bytes; the code for them takes up to {room}"
    others = _plain(layer)
    more = kernel.cost(layer) - min(other.cost(layer) for other in others)
    slower = _time(kernel, layer) / min(_time(other, layer) for other in others)
    if slower > slowest and more > layer.node.operands[1].type.nbytes // 2:
        return f"it is {slower:.2f} times as slow as with float32 weights; at most {slowest} is worth it"
    return None


def _plain(layer: LayerContext) -> list[Kernel]:
    """The variants that keep the layer's weights as they are; there is always one in portable C."""
    return [
        variant
        for kernel in KERNELS
        if kernel.op is type(layer.node.op)
        and kernel.trades.isdisjoint(PACKED)
        and kernel.features <= layer.target.features
        and kernel.supports(layer) is None
        for variant in kernel.variants(layer)
    ]


def _time(kernel: Kernel, layer: LayerContext) -> float:
    """Estimated cycles but for those of loads and branches: each product takes a multiply-add."""
    if not layer.target.has("fpu") or layer.target.has("mve_fp"):
        return kernel.cost(layer)
    timing = layer.target.timing
    cycles = timing.float_multiply_add if timing is not None else _MULTIPLY_ADD
    return kernel.cost(layer) + (cycles - 1) * layer.node.macs()
