"""Weighted sums of energies, in portable C."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.signal.filter_bank import SignalFilterBank, bounds_fault

_NAMES = ("weights", "unweights", "frequency starts", "weight starts", "widths")


@register
class SignalFilterBankPortable(Kernel):
    """Filter bank, band by band: each energy times its two weights, added to 64-bit sums.

    Weights are in pairs in reading order, [energies of all bands][2], without the weights that no band reads.
    A band is a pair of first energy and width. Weights that are never negative are unsigned. Cores with
    32-bit products only add the products of an energy's halves separately, in 32 bits. These sums fit if the
    weights of a band add up to at most 65537.
    """

    name = "u32_u64_signal_filter_bank__c"
    op = SignalFilterBank
    fields = declare(
        Field("weights", "[energies of all bands][2]: for the previous band's channel, for its own"),
        Field("bands", "[channels + 1][2]: first energy, width"),
        "channels",
    )

    def supports(self, layer: LayerContext) -> str | None:
        arrays = [layer.array(index) for index in range(1, 6)]
        weights, _, *bands = arrays
        if weights is None or any(array is None for array in arrays):
            return f"{', '.join(_NAMES)} must be constant"
        x = layer.node.operands[0].type
        fault = bounds_fault(x.size, weights.size, *(band for band in bands if band is not None))
        return fault or ("it does not support an epilogue" if layer.node.epilogue else None)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0,)

    def cost(self, layer: LayerContext) -> float:
        weights, bands = self._packed(layer)
        if layer.target.has("thumb2"):
            per_energy, per_band = 10.0, 15.0
        else:
            per_energy, per_band = (25.0, 80.0) if self._products(layer) == "halves" else (75.0, 40.0)
        return 20 + len(weights) * per_energy + len(bands) * per_band

    def lower(self, layer: LayerContext) -> KernelCall:
        weights, bands = self._packed(layer)
        products = self._products(layer)
        spec = (("products", products),)
        packed = weights.astype(np.int16 if products == "negative" else np.uint16)
        return KernelCall(
            CFunction("signal/filter_bank.c.j2", self.name, spec, self.fields),
            {
                "weights": Constant("weights", packed),
                "bands": Constant("bands", bands),
                "channels": len(bands) - 1,
            },
        )

    def _products(self, layer: LayerContext) -> str:
        """Return how energies are multiplied, see `signal/filter_bank.c.j2`."""
        weights, bands = self._packed(layer)
        if (weights < 0).any():
            return "negative"
        ends = np.cumsum(bands[:, 1])
        totals = np.diff(
            np.concatenate([[[0, 0]], np.cumsum(weights, axis=0, dtype=np.int64)])[[0, *ends]], axis=0
        )
        return "halves" if layer.target.has("thumb1") and totals.max() <= 65537 else "long"

    @staticmethod
    def _packed(layer: LayerContext) -> tuple[Array, Array]:
        """Return weights [energies of all bands, 2], and bands [channels + 1, 2]."""
        arrays = [layer.array(index) for index in range(1, 6)]
        weights, unweights, starts, weight_starts, widths = (a for a in arrays if a is not None)
        counts = np.maximum(widths, 0)
        read = [
            np.arange(start, start + count)
            for start, count in zip(weight_starts.tolist(), counts, strict=True)
        ]
        index = np.concatenate(read).astype(np.int64)
        return np.stack([weights[index], unweights[index]], axis=-1), np.stack([starts, counts], axis=-1)
