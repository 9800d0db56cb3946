"""Conversion of a kernel's sums to outputs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from microfold.kernels.call import Constant, Parameter, SpecValue
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range, output_table


class OutputStage(Struct, frozen=True, eq=False):
    """Parts of a call that depend on how sums become outputs.

    Attributes:
        spec: compile-time choices.
        parameters: layer fields, including the channels' records.
    """

    spec: tuple[tuple[str, SpecValue], ...]
    parameters: Mapping[str, Parameter]


def clamped_finish(
    layer: LayerContext, channels: Constant, choice: tuple[tuple[str, SpecValue], ...]
) -> OutputStage:
    """Return the conversion by the channels' records, with clamping to the output's bounds or a table lookup.

    Args:
        choice: compile-time choices in addition to clamping.
    """
    clamp, limits = output_range.proved_clamping(layer)
    spec = (*choice, ("clamp", clamp), *output_table.table_spec(layer.node))
    return OutputStage(spec, {"channels": channels, **limits, **output_table.table_parameters(layer.node)})
