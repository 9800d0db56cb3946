"""Layers of a streamed model: layers that compute rows, and layers that compute whole tensors."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from microfold.ir.node import Value
from microfold.kernels.band import LayerBand
from microfold.kernels.layer import LayerContext
from microfold.ops.rows import Rows
from microfold.plan.stream.row_node import Form, RowNode
from microfold.plan.stream.windows import RegionSchedule


class BandLayer(Struct, frozen=True, eq=False):
    """Layer that computes rows of a node.

    Attributes:
        band: the first of these parts.
        events: events of its region in which it runs.
    """

    node: RowNode
    form: Form
    band: LayerBand
    events: Sequence[int]


class PlannedLayer(Struct, frozen=True, eq=False):
    """Layer of a streamed model.

    Attributes:
        moments: moments at which it runs.
        call: number of the call among all calls on whole tensors; None: it computes rows.
        band: description of the rows that it computes; None: it computes whole tensors.
        region: index of the region that it belongs to, or of the region before it; -1: none.
    """

    layer: LayerContext
    moments: Sequence[int]
    call: int | None
    band: BandLayer | None
    region: int


class ComputedRows(Struct, frozen=True):
    """Rows of a value after a call has computed them.

    Attributes:
        layer: index of the layer.
        address: address in the arena.
        size: size in bytes.
    """

    layer: int
    value: Value
    rows: Rows
    address: int
    size: int


def band_layers(windows: RegionSchedule) -> list[BandLayer]:
    """Return a layer for each form of each node's bands, in the order in which they first run."""
    found: dict[tuple[RowNode, Form], list[int]] = {}
    for node, events in windows.events.items():
        for form, event in zip(node.forms, events, strict=False):
            found.setdefault((node, form), []).append(event)
    return [BandLayer(node, form, node.bands[form], events) for (node, form), events in found.items()]
