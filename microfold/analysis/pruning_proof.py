"""Pruning proof: claims about removed channels, for `microfold.analysis.check_pruning`."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct

from microfold.ir.node import Value


class Reason(enum.Enum):
    """Reason why a channel need not be computed. The value is the explanation in reports."""

    CONSTANT = "constant: its value is part of its readers' biases"
    UNREAD = "unread: no output depends on it"
    REPLACED = "constant: the whole tensor is, and became data"


class Claim(Struct, frozen=True):
    """Claim about one removed channel.

    Attributes:
        channel: index along the last axis, in the graph before the pass.
        low, high: interval of its values; equal for both kinds of constants.
    """

    channel: int
    low: int
    high: int
    reason: Reason


class PrunedValue(Struct, frozen=True, eq=False):
    """Claims about one value.

    Attributes:
        layer: operator that computes the value.
        value: value of the graph before the pass.
        claims: claims in ascending order of channels.
    """

    layer: str
    value: Value
    claims: tuple[Claim, ...]

    def groups(self) -> Iterator[tuple[tuple[Reason, int, int], tuple[int, ...]]]:
        """Yield each reason and interval, with the channels that share them."""

        def kind(claim: Claim) -> tuple[Reason, int, int]:
            return claim.reason, claim.low, claim.high

        def order(claim: Claim) -> tuple[str, int, int, int]:
            return claim.reason.name, claim.low, claim.high, claim.channel

        for key, claims in groupby(sorted(self.claims, key=order), kind):
            yield key, tuple(claim.channel for claim in claims)


class PruningProof(Struct, frozen=True, eq=False):
    """Everything that one run of the pass has removed.

    Attributes:
        graph_name: name of the graph, to distinguish subgraphs.
        values: values in the order in which the graph computes them.
        macs: multiply-accumulates before and after the pass.
    """

    graph_name: str
    values: tuple[PrunedValue, ...]
    macs: tuple[int, int]

    @property
    def channels(self) -> int:
        """Number of channels that are no longer computed."""
        return sum(len(value.claims) for value in self.values)
