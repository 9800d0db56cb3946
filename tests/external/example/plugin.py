"""An external code generator for one function of a firmware's own library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from microfold.external.external import External, ExternalRegion
from microfold.ir.match import Match
from microfold.ir.pattern import is_op, optional, sequence
from microfold.ir.pattern_table import PatternEntry
from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, Library
from microfold.kernels.fields import Field, declare
from microfold.kernels.requantize import output_range

ACME = Library("Acme DSP 2", ("acme_dsp.h",), templates=Path(__file__).parent / "templates")
FIELDS = declare("count", Field("low", "bounds of the output"), "high")


def check(match: Match) -> str | None:
    """None, or the reason why `acme_max_s8` does not compute it."""
    first, second = match.nodes[0].operands
    if first.type.dtype is not DType.INT8:
        return f"it takes int8; the operands are {first.type.dtype.value}"
    if first.type.shape != second.type.shape:
        return f"it does not broadcast; the operands are {first.type} and {second.type}"
    if match.flow.array(first) is not None or match.flow.array(second) is not None:
        return "an operand is constant"
    return "both operands are one value" if first is second else None


class Acme(External):
    """The larger of two values, limited, by ``acme_max_s8``."""

    name = "acme"

    @property
    def patterns(self) -> Sequence[PatternEntry]:
        return [PatternEntry("limited_max", sequence(is_op("maximum"), optional(is_op("clip"))), check)]

    def lower(self, region: ExternalRegion) -> KernelCall:
        layer = region.layer()
        low, high = output_range.integer_bounds(layer.node)
        function = CFunction("max.c.j2", "s8_maximum__acme", (), FIELDS, ACME, ("acme_max_s8",))
        return KernelCall(function, {"count": layer.node.outputs[0].type.size, "low": low, "high": high})
