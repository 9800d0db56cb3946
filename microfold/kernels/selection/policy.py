"""What a choice of kernels is to be good for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.model import Model
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D

# Percent by which the cycles of a timing table may be off where they decide: estimates of parts are off, too.
MOST_ERROR = 10


@dataclass(frozen=True)
class Policy:
    """What counts, and for which model.

    Attributes:
        level: ``size``, ``balanced`` or ``speed``.
        ram_limited: the arena has a limit, see `ram_budget`: below it, its size does not count.
    """

    level: str
    model: Model
    ram_limited: bool = False


def far_from_largest(layer: LayerContext, model: Model) -> bool:
    """Whether the layer needs at most half as many bytes of arena as the largest of the model."""
    size = layer.node.operands[0].type.nbytes + layer.node.outputs[0].type.nbytes
    return 2 * size <= model.largest_step


def cycles_per_instruction(kernel: Kernel, layer: LayerContext) -> float:
    """As far as waits are known: elsewhere instructions count, see `Kernel.cycles`."""
    return kernel.cycles(layer) / max(kernel.cost(layer), 1.0)


def counts_cycles(layer: LayerContext, level: str) -> bool:
    """Whether estimated cycles decide, not instructions: where a timing table is good, unless flash does.

    Of convolutions: the cycles of their kernels are measured, those of many others follow from instructions.
    """
    if not isinstance(layer.node.op, (Conv2D, DepthwiseConv2D)):
        return False
    error = None if layer.target.timing is None else layer.target.timing.error
    return level != "size" and error is not None and error <= MOST_ERROR


@dataclass(frozen=True)
class Case:
    """A kernel's variant for a layer, in view of a policy."""

    kernel: Kernel
    layer: LayerContext
    policy: Policy

    @cached_property
    def cost(self) -> float:
        """What selection compares: cycles where some were measured or are known, else `instructions`."""
        costs = self.policy.model.costs
        if costs is not None:
            return costs.cycles(self.kernel, self.layer)
        cycles = counts_cycles(self.layer, self.policy.level)
        return self.instructions * (cycles_per_instruction(self.kernel, self.layer) if cycles else 1.0)

    @property
    def measured(self) -> int | None:
        """Cycles of a call, if they were measured."""
        costs = self.policy.model.costs
        return None if costs is None else costs.measured(self.kernel, self.layer)

    @property
    def cycles(self) -> float:
        """Estimated, or measured, of a call."""
        costs = self.policy.model.costs
        if costs is not None:
            return costs.cycles(self.kernel, self.layer)
        return self.kernel.cost(self.layer) * cycles_per_instruction(self.kernel, self.layer)

    @cached_property
    def instructions(self) -> float:
        """Estimate of a call."""
        alone = self.policy.model.operators[type(self.layer.node.op)] == 1
        return self.kernel.cost_alone(self.layer) if alone else self.kernel.cost(self.layer)
