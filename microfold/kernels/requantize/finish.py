"""How a kernel's sums become outputs."""

from __future__ import annotations

from collections.abc import Mapping

from microfold.kernels.call import Constant, Parameter, SpecValue
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range, output_table
from microfold.support.frozen import frozen


@frozen(eq=False)
class Finish:
    """The part of a call that depends on it.

    Attributes:
        spec: compile-time choices.
        parameters: layer fields, records of channels among them.
    """

    spec: tuple[tuple[str, SpecValue], ...]
    parameters: Mapping[str, Parameter]


def clamped_finish(
    layer: LayerContext, channels: Constant, choice: tuple[tuple[str, SpecValue], ...]
) -> Finish:
    """By records of the channels, within the output's bounds, or looked up in a table.

    Args:
        choice: compile-time choices besides whether outputs are clamped.
    """
    clamp, limits = output_range.proved_clamping(layer)
    spec = (*choice, ("clamp", clamp), *output_table.table_spec(layer.node))
    return Finish(spec, {"channels": channels, **limits, **output_table.table_parameters(layer.node)})
