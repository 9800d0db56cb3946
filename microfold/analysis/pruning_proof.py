"""What pruning claims about the channels it removes: data for `microfold.analysis.check_pruning`."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from itertools import groupby

from microfold.ir.node import Value
from microfold.support.frozen import frozen


class Reason(enum.Enum):
    """Why a channel need not be computed; the value is the explanation for people."""

    CONSTANT = "constant: its value is part of its readers' biases"
    UNREAD = "unread: no output depends on it"
    REPLACED = "constant: the whole tensor is, and became data"


@frozen
class Claim:
    """One channel.

    Attributes:
        channel: its index along the last axis, in the graph before the pass.
        low, high: all that it can hold; equal for both kinds of constants.
    """

    channel: int
    low: int
    high: int
    reason: Reason


@frozen(eq=False)
class PrunedValue:
    """The claims about one value.

    Attributes:
        layer: the operator that computes it.
        value: of the graph before the pass.
        claims: by channel, ascending.
    """

    layer: str
    value: Value
    claims: tuple[Claim, ...]

    def groups(self) -> Iterator[tuple[tuple[Reason, int, int], tuple[int, ...]]]:
        """Reason and interval with the channels that share them."""

        def kind(claim: Claim) -> tuple[Reason, int, int]:
            return claim.reason, claim.low, claim.high

        def order(claim: Claim) -> tuple[str, int, int, int]:
            return claim.reason.name, claim.low, claim.high, claim.channel

        for key, claims in groupby(sorted(self.claims, key=order), kind):
            yield key, tuple(claim.channel for claim in claims)


@frozen(eq=False)
class PruningProof:
    """Everything that one run of the pass removed.

    Attributes:
        graph_name: of the graph, for subgraphs.
        values: in the order in which the graph computes them.
        macs: multiply-accumulates before and after.
    """

    graph_name: str
    values: tuple[PrunedValue, ...]
    macs: tuple[int, int]

    @property
    def channels(self) -> int:
        """How many channels are no longer computed."""
        return sum(len(value.claims) for value in self.values)
