"""Pattern tables for the tests of the passes behind external code generators."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from microfold.ir.match import Match
from microfold.ir.pattern import is_op, optional, sequence
from microfold.ir.pattern_table import PatternEntry
from microfold.passes.context import PassContext


class Table(Struct, frozen=True):
    """What the passes see of an external code generator."""

    name: str
    patterns: Sequence[PatternEntry] = field(default=())
    merges: bool = False


def _few_channels(match: Match) -> str | None:
    channels = match.nodes[0].output.type.shape[-1]
    return f"it takes up to 4 channels; there are {channels}" if channels > 4 else None


CLIP = PatternEntry("clip", is_op("clip"))
POOL = PatternEntry("pool", sequence(is_op("max_pool2d"), optional(is_op("clip"))), _few_channels)


def context(*tables: Table) -> PassContext:
    return PassContext(externals=tables)
