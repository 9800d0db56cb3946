"""Kernels of several models in one build, chosen by one integer program.

The models use one arena in turn, so that it is as large as the largest model's. Shared functions and
constants are in flash once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection.program import VariantChoice
from microfold.kernels.selection.selector import ArenaPlans, ArenaSize, RunBounds, Selector
from microfold.lowering.choose import ChosenKernels


class GroupMember(Struct, frozen=True, eq=False):
    """A model with the kernels that are best for it alone.

    Attributes:
        fixed_arena: bytes of its arena if no choice of kernels changes it, because layers run others.
    """

    selection: ChosenKernels
    fixed_arena: int

    @property
    def layers(self) -> int:
        """Number of its layers."""
        return len(self.selection.selector.layers)

    @property
    def plans(self) -> ArenaPlans | None:
        """Planner of its arena; None if the arena is fixed."""
        return self.selection.selector.plans


def joint_selector(parts: Sequence[GroupMember], fixed_ram: int) -> Selector:
    """Return the selector of the variants of all models; layers are in the order of the models.

    Args:
        fixed_ram: bytes of RAM of all models in addition to the arena.
    """
    starts = _starts(parts)
    layers = [
        [replace(variant, layer=start + variant.layer) for variant in variants]
        for start, part in zip(starts, parts, strict=True)
        for variants in part.selection.selector.layers
    ]
    fixed_flash = sum(part.selection.selector.fixed_flash for part in parts)
    return Selector(layers, JointPlans(parts), None, fixed_flash, fixed_ram)


def of_each(parts: Sequence[GroupMember], chosen: Sequence[VariantChoice]) -> list[Sequence[VariantChoice]]:
    """Return the choices of each model from the choices for all layers."""
    found: list[Sequence[VariantChoice]] = []
    for start, part in zip(_starts(parts), parts, strict=True):
        own = chosen[start : start + part.layers]
        found.append([replace(c, variant=replace(c.variant, layer=layer)) for layer, c in enumerate(own)])
    return found


def _starts(parts: Sequence[GroupMember]) -> list[int]:
    """Return the number of the first layer of each model."""
    return [*accumulate((part.layers for part in parts), initial=0)][:-1]


class _Largest(Struct, frozen=True):
    """Arena of all models."""

    size: int


class JointPlans:
    """Planner of the arena that several models share; each model keeps its own plan and order of calls."""

    def __init__(self, parts: Sequence[GroupMember]):
        self._parts = [*zip(_starts(parts), parts, strict=True)]

    def need(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Return the bytes of the smallest arena for all tensors that are live in a layer's call."""
        start, part = self._of(index)
        return part.plans.need(index - start, kernel, call) if part.plans is not None else part.fixed_arena

    def plan(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> ArenaSize:
        """Return the plan for the calls of all layers."""
        sizes: list[int] = []
        for start, part in self._parts:
            own = slice(start, start + part.layers)
            plans = part.plans
            sizes.append(plans.plan(kernels[own], calls[own]).size if plans is not None else part.fixed_arena)
        return _Largest(max(sizes))

    def runs_above(
        self, kernels: Sequence[Kernel], calls: Sequence[KernelCall], known: int
    ) -> list[Sequence[int]]:
        """Return the layers of short runs of calls that need more than `known` bytes."""
        found: list[Sequence[int]] = []
        for start, part in self._parts:
            own = slice(start, start + part.layers)
            if isinstance(part.plans, RunBounds):
                runs = part.plans.runs_above(kernels[own], calls[own], known)
                found += [[start + layer for layer in run] for run in runs]
        return found

    def run_bound(self, run: Sequence[int], kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> int:
        """Return a lower bound, in bytes, of every plan for a run of calls of one model."""
        start, part = self._of(run[0])
        assert isinstance(part.plans, RunBounds)  # it has found the run
        return part.plans.run_bound([layer - start for layer in run], kernels, calls)

    def _of(self, index: int) -> tuple[int, GroupMember]:
        """Return the number of the first layer of a layer's model, and the model."""
        return next((start, part) for start, part in reversed(self._parts) if start <= index)
