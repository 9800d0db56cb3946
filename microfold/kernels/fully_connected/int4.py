"""int8 fully connected layers with 4-bit weights, in portable C."""

from __future__ import annotations

from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import declare
from microfold.kernels.fully_connected.portable import (
    centred_weights,
    fully_connected_types,
    unit_multipliers,
    unsupported_integer_fully_connected,
)
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import int4
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.fully_connected import FullyConnected


def unsupported_int4(layer: LayerContext) -> str | None:
    """Return the reason why no kernel with 4-bit weights, which may have a zero point, supports the layer."""
    return unsupported_integer_fully_connected(layer) or int4.unsupported(centred_weights(layer))


class FullyConnectedInt4(Kernel):
    """Base class of kernels that read words of 4-bit weights.

    `unsupported_int4` checks that the weights fit 4 bits, and that sums fit int32.
    """

    op = FullyConnected
    trades = frozenset({ResourceTradeoff.FOUR_BITS})

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_int4(layer)

    def shape(self, layer: LayerContext) -> dict[str, Parameter]:
        """Return the fields with the sizes of the layer."""
        x, _, out = fully_connected_types(layer)
        return matrix_parameters(x, out)


@register
class FullyConnectedPortableInt4(FullyConnectedInt4):
    """Fully connected layer of 4 units at a time. The sums of two units share a word while they fit 16 bits.

    `packing.int4.pack_words` defines the layout. `word_constants` has the records and their proof.
    """

    name = "s8_s4w_fully_connected__c"
    code = 700
    fields = declare(
        *int4.WORD_FIELDS,
        *MATRIX_FIELDS,
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        return Terms(call=1) + x.shape[0] * int4.row_terms(x.shape[1], out.shape[1])

    def lower(self, layer: LayerContext) -> KernelCall:
        spec, constants = int4.word_constants(layer, centred_weights(layer), unit_multipliers(layer))
        fields = {**constants, **self.shape(layer)}
        return KernelCall(CFunction("fully_connected/int4.c.j2", self.name, spec, self.fields), fields)
