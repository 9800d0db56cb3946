"""Costs of kernels that were measured on a core: the one place where records of it enter selection.

A record belongs to a kind of layer (operator, attributes, types without their scales), and to the function
and the choices with which a kernel computes it. So it holds for other layers and models, too, as long as they
need the same code on the same shapes.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from microfold.ir.attributes import attribute_types
from microfold.ir.op import Op
from microfold.ir.types import ElementType, TensorType
from microfold.kernels.band import lowered
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.distinguish import choices_of, distinguishing_names

# Letters of a choice in a key; of longer ones it has a digest.
LONGEST_WORD = 20


@dataclass(frozen=True)
class Figure:
    """What a call was found to take.

    Attributes:
        cycles: the least of all runs.
        estimate: cycles that the cost model had said, `Kernel.cycles`.
    """

    cycles: int
    estimate: float


class MeasuredCosts:
    """Costs in cycles: as measured where they were, elsewhere estimates on the same scale.

    Args:
        figures: by `layer_key` and `variant_key`.
        source: where they were measured, for people.
    """

    def __init__(self, figures: Mapping[tuple[str, str], Figure], source: str):
        self.source = source
        self._layers: dict[str, dict[str, Figure]] = defaultdict(dict)
        for (layer, variant), figure in figures.items():
            self._layers[layer][variant] = figure
        # Cycles for one that the cost model says: of all records, and of those of each layer.
        self._scale = median(map(_ratio, figures.values())) if figures else 1.0
        self._scales = {key: median(map(_ratio, found.values())) for key, found in self._layers.items()}
        self._keys = VariantKeys()

    def measured(self, kernel: Kernel, layer: LayerContext) -> int | None:
        """Cycles of a call; None if they were not measured."""
        known = self._layers.get(self._keys.layer(layer))
        figure = known.get(self._keys.variant(kernel, layer)) if known else None
        return figure.cycles if figure is not None else None

    def cycles(self, kernel: Kernel, layer: LayerContext) -> float:
        """Cycles of a call: measured, or estimated.

        Estimates are multiplied by what the layer's measured kernels, or all that were measured, take for a
        cycle of their estimates: the cores' models know neither wait states nor caches.
        """
        found = self.measured(kernel, layer)
        if found is not None:
            return float(found)
        return kernel.cycles(layer) * self._scales.get(self._keys.layer(layer), self._scale)


def _ratio(figure: Figure) -> float:
    return figure.cycles / max(figure.estimate, 1.0)


class VariantKeys:
    """Keys of layers and of what computes them, each found once."""

    def __init__(self) -> None:
        self._layers: dict[LayerContext, str] = {}
        self._names: dict[tuple[str, LayerContext], list[str]] = {}
        self._variants: dict[tuple[Kernel, LayerContext], str] = {}

    def layer(self, layer: LayerContext) -> str:
        """`layer_key`."""
        if layer not in self._layers:
            self._layers[layer] = layer_key(layer)
        return self._layers[layer]

    def variant(self, kernel: Kernel, layer: LayerContext) -> str:
        """The kernel, the choices that tell it from other variants, and a digest of all its choices."""
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
    """A value for people, or a digest where it is long."""
    text = str(value).replace(" ", "")
    return text if len(text) <= LONGEST_WORD else f"#{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def layer_key(layer: LayerContext) -> str:
    """The operator of a layer with all that it is fused with, its attributes and types.

    Scales, zero points and the contents of constants are left out: no kernel's time depends on them.
    """
    node = layer.node
    inputs = ", ".join(_type(v.type) if v is not None else "none" for v in node.inputs)
    steps = [f"{_operator(s.op)}({', '.join(_type(v.type) for v in s.operands)})" for s in node.epilogue]
    outputs = ", ".join(_type(value.type) for value in node.outputs)
    return " | ".join([f"{_operator(node.op)}({inputs})", *steps]) + f" -> {outputs}"


def _type(type: TensorType) -> str:
    return f"{type.dtype.value}[{','.join(map(str, type.shape))}]"


def _operator(op: Op) -> str:
    fields = ((name, getattr(op, name)) for name in attribute_types(type(op)))
    words = [f"{name}={_attribute(value)}" for name, value in fields if not isinstance(value, float)]
    return f"{op.name}{{{' '.join(words)}}}" if words else op.name


def _attribute(value: Any) -> str:
    if isinstance(value, ElementType):
        return value.dtype.value
    if isinstance(value, TensorType):
        return _type(value)
    if isinstance(value, tuple):
        return f"({','.join(map(_attribute, value))})"  # type: ignore[reportUnknownVariableType]
    return str(value).replace(" ", "")
