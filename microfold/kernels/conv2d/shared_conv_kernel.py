"""Kernels that delegate the sums of their layer to a convolution kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from microfold.kernels.cost.terms import Terms
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext


class ByConvolution(Kernel, Struct, frozen=True, eq=False):
    """Base class of kernels with the variants of a convolution kernel, which computes another layer for them.

    The convolution kernel packs the constants. Its proofs hold for the layer that `convolved` returns.

    Attributes:
        variant: variant of the convolution kernel; None until it is chosen.
        trades: resources that the variant spends.

    Class attributes:
        convolution: the convolution kernel.
    """

    variant: Kernel | None = None
    trades: frozenset[ResourceTradeoff] = frozenset()

    convolution: ClassVar[Kernel]

    def __post_init__(self) -> None:
        force_setattr(self, "trades", (self.variant or self.convolution).trades)

    def convolved(self, layer: LayerContext) -> LayerContext:
        """Return the convolution that computes the layer's sums."""
        raise NotImplementedError

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        return [replace(self, variant=each) for each in self.convolution.variants(self.convolved(layer))]

    @property
    def function_bytes(self) -> int:
        return self.code if self.variant is None else self.variant.function_bytes

    def beside(self, layer: LayerContext) -> Sequence[tuple[Kernel, LayerContext]]:
        """Return the layers that it computes in addition to the convolution, each with its kernel."""
        del layer
        return ()

    def terms(self, layer: LayerContext) -> Terms:
        """Count the code parts beyond the convolution and the layers of `beside`. Default: none."""
        del layer
        return Terms()

    def cost(self, layer: LayerContext) -> float:
        return self._variant.cost(self.convolved(layer)) + self._added(layer)

    def single_caller_cost(self, layer: LayerContext) -> float:
        row = self.row(layer.target.features)
        known = row.alone if row is not None and row.alone else None
        return self._variant.single_caller_cost(self.convolved(layer)) + self._added(layer, known)

    def cycles(self, layer: LayerContext) -> float:
        return self._variant.cycles(self.convolved(layer)) + self._added_cycles(layer, alone=False)

    def single_caller_cycles(self, layer: LayerContext) -> float:
        return self._variant.single_caller_cycles(self.convolved(layer)) + self._added_cycles(
            layer, alone=True
        )

    def _added(self, layer: LayerContext, known: Mapping[str, float] | None = None) -> float:
        """Estimate the instructions in addition to the convolution's."""
        beside = sum(kernel.cost(part) for kernel, part in self.beside(layer))
        return beside + self.price(layer, self.terms(layer), known)

    def _added_cycles(self, layer: LayerContext, *, alone: bool) -> float:
        """Estimate the cycles in addition to the convolution's."""
        row = self.row(layer.target.features)
        known = {} if row is None else row.alone_cycles if alone and row.alone_cycles else row.cycles
        beside = sum(kernel.cycles(part) for kernel, part in self.beside(layer))
        return beside + self.price(layer, self.terms(layer), known)

    @property
    def _variant(self) -> Kernel:
        assert self.variant is not None
        return self.variant


def register_by(base: type[ByConvolution], what: str, convolutions: Mapping[str, type[Kernel]]) -> None:
    """Register a kernel for each of some convolution kernels.

    Args:
        what: computation of the kernels, as the beginning of a docstring.
        convolutions: convolution kernels, by the name of the registered kernel.
    """
    for name, convolution in convolutions.items():
        fields = {
            "__doc__": f"{what}, computed by `{convolution.__name__}` with its constants and proofs.",
            "name": name,
            "features": convolution.features,
            "superseded_by": convolution.superseded_by,
            "convolution": convolution(),
        }
        suffix = name.rpartition("_")[2].title()
        register(type(f"{base.op.__name__}{suffix}{convolution.__name__}", (base,), fields))
