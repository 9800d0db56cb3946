"""Which of a kernel's variants computes a layer: time against memory."""

from __future__ import annotations

from collections.abc import Mapping

from microfold.kernels.kernel import Kernel, Trade
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.policy import Policy, cycles_per_instruction, far_from_largest
from microfold.kernels.selection.worth import refuse

# Parts of a layer's time that as many bytes of arena are worth as its input and output have.
_MEMORY_FOR_TIME: Mapping[str, float] = {"size": 2.0, "balanced": 1.0, "speed": 0.25}
# What is left of that far from the largest layer of the model.
_FAR_FROM_LARGEST = 0.25


def best_variant(kernel: Kernel, layer: LayerContext, policy: Policy) -> Kernel | str:
    """The variant with the best score, or why none is worth what it gives up.

    Args:
        kernel: it supports the layer.
    """
    offered = kernel.variants(layer)
    reasons = [refuse(policy, variant, layer) for variant in offered]
    allowed = [variant for variant, reason in zip(offered, reasons, strict=True) if reason is None]
    if len(allowed) > 1:
        return min(allowed, key=lambda variant: (_score(variant, layer, policy), _tie(variant, policy)))
    return allowed[0] if allowed else next(reason for reason in reasons if reason is not None)


def _tie(variant: Kernel, policy: Policy) -> bool:
    """Whether another variant with the same score is better.

    Where only some layers are given wide weights, these have a function of their own, and often alone:
    compilers make it for its one caller.
    """
    wide = Trade.WIDE_WEIGHTS in variant.trades
    return wide if policy.level == "speed" else not wide


def _score(variant: Kernel, layer: LayerContext, policy: Policy) -> float:
    """Cycles, and for memory some more of them."""
    size = layer.node.operands[0].type.nbytes + layer.node.outputs[0].type.nbytes
    weight = _MEMORY_FOR_TIME[policy.level]
    if far_from_largest(layer, policy.model):
        weight *= _FAR_FROM_LARGEST
    cycles = variant.cost(layer) * cycles_per_instruction(variant, layer)
    return cycles * (1 + weight * variant.extra_memory(layer) / size)
