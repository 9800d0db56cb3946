"""Functions of int16 with Helium: interpolation in a table for four elements at once."""

from __future__ import annotations

from msgspec.structs import replace

from microfold.kernels.call import KernelCall
from microfold.kernels.cost.terms import Terms, vector_terms
from microfold.kernels.elementwise.unary import LogisticInt16, SigmoidInt16, TanhInt16, UnaryInt16
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext

# Elements per vector: its int32 lanes.
_LANES = 4


def _vectors(layer: LayerContext, call: KernelCall, template: str) -> KernelCall:
    """Return the call with another template, and with the choice whether there is a tail."""
    tail = layer.node.outputs[0].type.size % _LANES != 0
    spec = (*call.function.spec, ("tail", tail))
    name = call.function.name.replace("__c", "__mve")
    return replace(call, function=replace(call.function, name=name, template=template, spec=spec))


class _SigmoidMve(SigmoidInt16):
    """The reference's interpolation for four elements at once, with two gather loads of adjacent entries.

    The table and the steps are as in `SigmoidInt16`, computed in lanes.
    """

    features = frozenset({"mve"})

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1) + vector_terms(1, layer.node.outputs[0].type.size, _LANES)

    def lower(self, layer: LayerContext) -> KernelCall:
        return _vectors(layer, super().lower(layer), "elementwise/tables/logistic_s16_mve.c.j2")


@register
class LogisticInt16Mve(_SigmoidMve, LogisticInt16):
    """Sigmoid in Q0.15; the lowest nine bits of a scaled element interpolate between two entries."""

    name = "s16_logistic__mve"


@register
class TanhInt16Mve(_SigmoidMve, TanhInt16):
    """``2 * sigmoid(2x) - 1``; the lowest eight bits of a scaled element interpolate between two entries."""

    name = "s16_tanh__mve"


@register
class UnaryInt16Mve(UnaryInt16):
    """Other functions for four elements at once, with two gather loads and the reference's slope of 16 bits.

    The table is as in `UnaryInt16`: 513 results, computed by the operator's `int16_table`.
    """

    name = "s16_unary__mve_table"
    features = frozenset({"mve"})

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1) + vector_terms(1, layer.node.outputs[0].type.size, _LANES)

    def lower(self, layer: LayerContext) -> KernelCall:
        return _vectors(layer, super().lower(layer), "elementwise/tables/table_s16_mve.c.j2")
