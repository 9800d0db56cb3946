"""Measured costs of kernels: the only module through which measurements enter selection.

A record belongs to a kind of layer (operator, attributes, types without their scales), and to a function with
the choices by which a kernel computes it. Therefore it also applies to other layers and models that need the
same code for the same shapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from microfold.ir.kind import kind_of
from microfold.kernels.band import lowered
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.variant_labels import choices_of, distinguishing_names
from microfold.support.digest import digest_of

# Maximum number of letters of a choice in a key; a longer one is replaced by a digest.
LONGEST_WORD = 20


class CallCost(Struct, frozen=True):
    """Measured and estimated cost of a call.

    Attributes:
        cycles: minimum of all runs.
        estimate: cycles by the cost model, see `Kernel.cycles`.
    """

    cycles: int
    estimate: float


class MeasuredCosts:
    """Costs in cycles: measured if possible, otherwise estimated on the same scale.

    Args:
        figures: measured costs, by `kind_of` the layers' nodes and `VariantKeys.variant`.
        source: description of the board, for readers.
        failed: reasons of variants that failed and were never measured, by the same keys.
    """

    def __init__(
        self,
        figures: Mapping[tuple[str, str], CallCost],
        source: str,
        failed: Mapping[tuple[str, str], str] | None = None,
    ):
        from statistics import median  # slow to import, and few builds have measurements

        self.source = source
        self._failed = failed or {}
        self._layers: dict[str, dict[str, CallCost]] = defaultdict(dict)
        for (layer, variant), figure in figures.items():
            self._layers[layer][variant] = figure
        # Measured cycles per estimated cycle: median of all records, and medians of each layer's records.
        self._scale = median(map(_ratio, figures.values())) if figures else 1.0
        self._scales = {key: median(map(_ratio, found.values())) for key, found in self._layers.items()}
        self._keys = VariantKeys()

    def measured(self, kernel: Kernel, layer: LayerContext) -> int | None:
        """Return the cycles of a call; None if they were not measured."""
        known = self._layers.get(self._keys.layer(layer))
        figure = known.get(self._keys.variant(kernel, layer)) if known else None
        return figure.cycles if figure is not None else None

    def failure(self, kernel: Kernel, layer: LayerContext) -> str | None:
        """Return why a kernel must not compute a layer, because it failed on the board; None if it may."""
        if not self._failed:
            return None
        reason = self._failed.get((self._keys.layer(layer), self._keys.variant(kernel, layer)))
        if reason is None:
            return None
        return f"it failed on {self.source} ({reason}); `microfold tune --retry` tries it again"

    def cycles(self, kernel: Kernel, layer: LayerContext) -> float:
        """Return the cycles of a call: measured, or estimated.

        Estimates are scaled by the ratio of measured to estimated cycles: that of the layer's measured
        kernels, or of all measured kernels. The timing models of cores know neither wait states nor caches.
        """
        found = self.measured(kernel, layer)
        if found is not None:
            return float(found)
        return kernel.cycles(layer) * self._scales.get(self._keys.layer(layer), self._scale)


def _ratio(figure: CallCost) -> float:
    return figure.cycles / max(figure.estimate, 1.0)


class VariantKeys:
    """Keys of layers and variants in the database; each key is computed once."""

    def __init__(self) -> None:
        self._layers: dict[LayerContext, str] = {}
        self._names: dict[tuple[str, LayerContext], list[str]] = {}
        self._variants: dict[tuple[Kernel, LayerContext], str] = {}

    def layer(self, layer: LayerContext) -> str:
        """Return `kind_of` the layer's node."""
        if layer not in self._layers:
            self._layers[layer] = kind_of(layer.node)
        return self._layers[layer]

    def variant(self, kernel: Kernel, layer: LayerContext) -> str:
        """Return the kernel's name, the choices that distinguish the variant, and a digest of all choices."""
        if (kernel, layer) not in self._variants:
            self._variants[kernel, layer] = self._variant(kernel, layer)
        return self._variants[kernel, layer]

    def _variant(self, kernel: Kernel, layer: LayerContext) -> str:
        call = lowered(kernel, layer)
        known = choices_of(call)
        telling = {name: known[name] for name in self._telling(kernel, layer) if name in known}
        words = [f"{name}={_short(value)}" for name, value in telling.items()]
        words += [f"scratch={call.scratch}"] if call.scratch else []
        everything = repr((call.function.name, call.function.spec, telling))
        return " ".join([kernel.name, *words, _short(everything)])

    def _telling(self, kernel: Kernel, layer: LayerContext) -> list[str]:
        if (kernel.name, layer) not in self._names:
            variants = next((k.variants(layer) for k in KERNELS if k.name == kernel.name), (kernel,))
            self._names[kernel.name, layer] = distinguishing_names([lowered(v, layer) for v in variants])
        return self._names[kernel.name, layer]


def _short(value: Any) -> str:
    """Return a value as text, or as a digest if the text is long."""
    text = str(value).replace(" ", "")
    return text if len(text) <= LONGEST_WORD else f"#{digest_of(text)}"
