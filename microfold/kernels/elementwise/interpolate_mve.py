"""Functions of int16 for Helium: interpolation between the entries of a table for four elements at once."""

from __future__ import annotations

from dataclasses import replace

from microfold.kernels.call import KernelCall
from microfold.kernels.elementwise.unary import LogisticInt16, SigmoidInt16, TanhInt16, UnaryInt16
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext

_LANES = 4


def _vectors(layer: LayerContext, call: KernelCall, template: str) -> KernelCall:
    """The call with another template, which wants to know of a rest."""
    tail = layer.node.outputs[0].type.size % _LANES != 0
    spec = (*call.function.spec, ("tail", tail))
    name = call.function.name.replace("__c", "__mve")
    return replace(call, function=replace(call.function, name=name, template=template, spec=spec))


class _SigmoidMve(SigmoidInt16):
    """The reference's interpolation."""

    features = frozenset({"mve"})

    def cost(self, layer: LayerContext) -> float:
        return 40 + 31.0 * -(-layer.node.outputs[0].type.size // _LANES)

    def lower(self, layer: LayerContext) -> KernelCall:
        return _vectors(layer, super().lower(layer), "elementwise/tables/logistic_s16_mve.c.j2")


@register
class LogisticInt16Mve(_SigmoidMve, LogisticInt16):
    name = "s16_logistic__mve"


@register
class TanhInt16Mve(_SigmoidMve, TanhInt16):
    name = "s16_tanh__mve"


@register
class UnaryInt16Mve(UnaryInt16):
    """Other functions, whose tables have 513 entries."""

    name = "s16_unary__mve_table"
    features = frozenset({"mve"})

    def cost(self, layer: LayerContext) -> float:
        return 30 + 14.0 * -(-layer.node.outputs[0].type.size // _LANES)

    def lower(self, layer: LayerContext) -> KernelCall:
        return _vectors(layer, super().lower(layer), "elementwise/tables/table_s16_mve.c.j2")
