"""What relaxed numerics did to a graph: data for the build report."""

from __future__ import annotations

from microfold.support.frozen import frozen


@frozen
class Relaxation:
    """A rewrite after which the outputs may have other bits; the evidence of the pass's decision.

    Attributes:
        where: the node that went, e.g. ``mul %scaled``.
        change: what was done with it, and what is rounded in another way now.
    """

    where: str
    change: str
