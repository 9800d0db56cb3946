"""int8 fully connected layers for Helium (MVE)."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.fully_connected.int4 import unsupported_int4
from microfold.kernels.fully_connected.portable import (
    centred_weights,
    fully_connected_types,
    unit_multipliers,
    unsupported_integer_fully_connected,
    weights_zero_point,
)
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import int4_mve, mve
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.fully_connected import FullyConnected


def _requantization(layer: LayerContext) -> tuple[mve.MveForm, Array]:
    multipliers = unit_multipliers(layer)
    return mve.requantization(layer, centred_weights(layer), multipliers)


def _have_one_scale(form: mve.MveForm, records: Array) -> bool:
    return form is not mve.MveForm.GENERAL and bool((records[:, 1:] == records[0, 1:]).all())


@register
class FullyConnectedMve(Kernel):
    """Fully connected layer in blocks of 4 units, with 16 products per instruction.

    The inner loop is tail-predicated, for any number of inputs. `blocks` has `mve.block_words` or, if all
    units have the same scale, only the biases (`mve.pack_24_bits`), then [4][inputs] weights.
    `mve.requantization` chooses the shortest exact form.
    """

    name = "s8_fully_connected__mve_4"
    op = FullyConnected
    features = frozenset({"mve"})
    code = 110
    fields = declare(
        "blocks",
        "weights",
        "channels",
        Field("biases", "biases of the units, padded to blocks of 4"),
        Field("multiplier", "multiplier of all units"),
        "shift",
        *MATRIX_FIELDS,
        "output_zero_point",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        if reason := unsupported_integer_fully_connected(layer):
            return reason
        if zero_point := weights_zero_point(layer):
            return f"its weights must have zero point 0; got {zero_point}"
        return None

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        form, _ = _requantization(layer)
        blocks = x.shape[0] * -(-out.shape[1] // mve.BLOCK)
        block = Terms(block=1, vector=-(-x.shape[1] // mve.LANES)) + mve.finish_terms(form)
        return Terms(call=1) + blocks * block

    def have_one_scale(self, form: mve.MveForm, records: Array) -> bool:
        """Return whether units differ only in their biases, in a form that the code supports."""
        return _have_one_scale(form, records) and mve.unshared_biases(records) is None

    def pack(self, matrix: Array, records: Array, *, common: bool) -> tuple[dict[str, Constant], str]:
        """Return weights and records in the C code's layout, and the packing of 4-bit weights, else empty."""
        words = mve.pack_24_bits(records[:, 0]) if common else mve.block_words(records)
        return {"blocks": Constant("weights", mve.pack_rows(matrix, words))}, ""

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        form, records = _requantization(layer)
        clamp, fields = mve.output_parameters(layer)
        common = self.have_one_scale(form, records)
        constants, int4 = self.pack(centred_weights(layer), records, common=common)
        parameters: dict[str, Parameter] = {**constants}
        if common:
            parameters |= {"multiplier": int(records[0, 1]), "shift": int(records[0, 2])}
        parameters |= {**matrix_parameters(x, out), **fields}
        spec = (*mve.finish_spec(form, clamp, out.shape[1]), ("common", common), ("int4", int4))
        order = "[4] lower halfwords, [4] upper bytes of biases" if common else mve.record_order(form)
        described = describe(
            self.fields,
            blocks=f"blocks of 4 units: {order}, weights [4][inputs]",
            weights="[blocks of 4 units][inputs / 16, rounded up][2][16], two units a byte",
            channels=f"[blocks]{mve.record_order(form)}",
        )
        return KernelCall(CFunction("fully_connected/mve.c.j2", self.name, spec, described), parameters)


@register
class FullyConnectedMveInt4(FullyConnectedMve):
    """`FullyConnectedMve` with 4-bit weights, two units in a byte, see `packing.int4_mve`.

    `unsupported_sums` checks that 16 times a sum fits 32 bits.
    """

    name = "s8_s4w_fully_connected__mve"
    trades = frozenset({ResourceTradeoff.FOUR_BITS})

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_int4(layer) or int4_mve.unsupported_sums(layer, centred_weights(layer))

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        apart = int4_mve.choose_bytes(centred_weights(layer)) is int4_mve.Bytes.APART
        vectors = -(-x.shape[1] // mve.LANES)
        unpacked = x.shape[0] * -(-out.shape[1] // mve.BLOCK)
        return super().terms(layer) + Terms(unpacked=unpacked, apart=unpacked * vectors * apart)

    def have_one_scale(self, form: mve.MveForm, records: Array) -> bool:
        return _have_one_scale(form, records)

    def pack(self, matrix: Array, records: Array, *, common: bool) -> tuple[dict[str, Constant], str]:
        rows = mve.block_words(records)
        rows[:, : mve.BLOCK] = int4_mve.starts(matrix, records[:, 0])
        constants = {"weights": Constant("weights", int4_mve.block_bytes(matrix))}
        if common:
            constants["biases"] = Constant("biases", np.ascontiguousarray(rows[:, : mve.BLOCK]))
        else:
            constants["channels"] = Constant("channels", rows)
        return constants, int4_mve.choose_bytes(matrix).value
