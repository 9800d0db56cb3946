"""Fully connected kernel for Helium."""

from __future__ import annotations

from microfold.ir.types import Array
from microfold.kernels import mve
from microfold.kernels.fully_connected import (
    centred_weights,
    fully_connected_types,
    unit_multipliers,
    unsupported_integer_fully_connected,
    weights_zero_point,
)
from microfold.kernels.kernel import Call, Constant, Function, Kernel, Parameter, Site, register
from microfold.ops.fully_connected import FullyConnected


def _requantization(site: Site) -> tuple[mve.Form, Array]:
    multipliers = unit_multipliers(site)
    return mve.requantization(site, centred_weights(site), multipliers)


@register
class FullyConnectedMve(Kernel):
    """Blocks of 4 units, 16 products an instruction, in a tail-predicated loop: any number of inputs."""

    name = "s8_fully_connected__mve_4"
    op = FullyConnected
    features = frozenset({"mve"})

    def supports(self, site: Site) -> str | None:
        if reason := unsupported_integer_fully_connected(site):
            return reason
        if zero_point := weights_zero_point(site):
            return f"it needs weights with zero point 0; it is {zero_point}"
        return None

    def cost(self, site: Site) -> float:
        x, _, out = fully_connected_types(site)
        form, _ = _requantization(site)
        block = -(-x.shape[1] // mve.LANES) * 11 + 14 + mve.finish_cost(form)
        return x.shape[0] * -(-out.shape[1] // mve.BLOCK) * block + 30

    def lower(self, site: Site) -> Call:
        x, _, out = fully_connected_types(site)
        weights = site.array(1)
        assert weights is not None
        form, records = _requantization(site)
        clamp, fields = mve.output_parameters(site)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", mve.block_weights(weights)),
            "channels": Constant("channels", mve.block_records(records)),
            "batch": x.shape[0],
            "inputs": x.shape[1],
            "outputs": out.shape[1],
            **fields,
        }
        spec = mve.finish_spec(form, clamp, out.shape[1])
        return Call(Function("fully_connected/mve.c.j2", self.name, spec), parameters)
