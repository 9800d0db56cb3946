"""Softmax of int8 with Helium: four exponentials by one gather load, or computed together."""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ir.types import DType
from microfold.kernels.call import KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.normalize.softmax import ComputedSoftmaxInt8, SoftmaxInt8

# Elements per vector.
_LANES = 4


class _SoftmaxMve(SoftmaxInt8):
    """Softmax by the reference's steps: VQRDMULH is its rounded doubling product, VRSHL its rounded shift.

    The table is as in `SoftmaxInt8`; one load gathers four entries.
    """

    features = frozenset({"mve"})

    def terms(self, layer: LayerContext) -> Terms:
        return _vector_terms(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        return _with_vectors(super().lower(layer))


@register
class SoftmaxInt8Mve(_SoftmaxMve):
    """Softmax of int8 with an int8 result, four elements at once."""

    name = "s8_softmax__mve"


@register
class SoftmaxInt8ToInt16Mve(_SoftmaxMve):
    """Softmax of int8 with an int16 result, four elements at once."""

    name = "s8_s16_softmax__mve"
    dtypes = (DType.INT8, DType.INT16)


class _ComputedSoftmaxMve(ComputedSoftmaxInt8):
    """Softmax without a table: four exponentials are computed together by the reference's steps, twice."""

    features = frozenset({"mve"})
    code = 700

    def terms(self, layer: LayerContext) -> Terms:
        return _vector_terms(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        return _with_vectors(super().lower(layer))


@register
class ComputedSoftmaxInt8Mve(_ComputedSoftmaxMve):
    """Softmax of int8 with computed exponentials and an int8 result, four elements at once."""

    name = "s8_softmax__mve_exp"


@register
class ComputedSoftmaxInt8ToInt16Mve(_ComputedSoftmaxMve):
    """Softmax of int8 with computed exponentials and an int16 result, four elements at once."""

    name = "s8_s16_softmax__mve_exp"
    dtypes = (DType.INT8, DType.INT16)


def _vector_terms(layer: LayerContext) -> Terms:
    x = layer.node.operands[0].type
    rows = x.size // x.shape[-1]
    return Terms(call=1, row=rows, vector=rows * -(-x.shape[-1] // _LANES))


def _with_vectors(call: KernelCall) -> KernelCall:
    return replace(call, function=replace(call.function, template="normalize/softmax_mve.c.j2"))
