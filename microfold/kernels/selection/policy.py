"""What a choice of kernels is to be good for."""

from __future__ import annotations

from functools import cached_property

from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.model import Model
from microfold.support.frozen import frozen


@frozen
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


@frozen
class Case:
    """A kernel's variant for a layer, in view of a policy."""

    kernel: Kernel
    layer: LayerContext
    policy: Policy

    @cached_property
    def cost(self) -> float:
        """What selection compares: cycles of a call, measured or estimated."""
        costs = self.policy.model.costs
        if costs is not None:
            return costs.cycles(self.kernel, self.layer)
        return self.cycles

    @cached_property
    def cycles(self) -> float:
        """Estimate of a call, whatever was measured."""
        estimate = self.kernel.cycles_alone if self._alone else self.kernel.cycles
        key = Case, self.kernel, self.layer
        return self.policy.model.remembered(key, lambda: estimate(self.layer))

    @property
    def measured(self) -> int | None:
        """Cycles of a call, if they were measured."""
        costs = self.policy.model.costs
        return None if costs is None else costs.measured(self.kernel, self.layer)

    @property
    def failure(self) -> str | None:
        """Why it must not compute the layer: it did not where it was measured; None: it may."""
        costs = self.policy.model.costs
        return None if costs is None else costs.failure(self.kernel, self.layer)

    @cached_property
    def instructions(self) -> float:
        """Estimate of a call."""
        return self.kernel.cost_alone(self.layer) if self._alone else self.kernel.cost(self.layer)

    @property
    def _alone(self) -> bool:
        """Whether no other layer can call its function."""
        return self.policy.model.operators[type(self.layer.node.op)] == 1
