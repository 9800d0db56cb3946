"""What an external code generator is: a name, a pattern table, and an emitter for what the patterns find.

The passes `annotate_target`, `merge_compiler_regions` and `partition_graph` make a function of every part of
a model that fits a pattern; `External.lower` turns a function into one call in the generated C.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.pattern_table import PatternEntry
from microfold.kernels.call import KernelCall
from microfold.kernels.layer import LayerContext
from microfold.options import Options
from microfold.support.frozen import frozen
from microfold.target import Target


@frozen
class Region:
    """A part of a model that an external code generator is to compute.

    Attributes:
        body: its inputs are the pointers that the C function gets first, its outputs those that it gets next;
            constants are in the body. Clips are fused into the nodes before them.
        composite: the pattern that found it; empty if several did.
    """

    body: Graph
    composite: str
    target: Target
    options: Options

    def layer(self, node: Node | None = None) -> LayerContext:
        """Return a node of the body as kernels see it; the last one by default."""
        return LayerContext(node or self.body.nodes[-1], self.body.constants, self.target)


class External(ABC):
    """Base of external code generators. Instances have no state.

    Class attributes:
        name: what the user calls it, e.g. ``cmsis-nn``.
        automatic: it is used without being asked for, as nothing else computes what its patterns find.
        merges: it takes regions of several matches; else every match is a region.
    """

    name: str
    automatic: bool = False
    merges: bool = False

    @property
    @abstractmethod
    def patterns(self) -> Sequence[PatternEntry]:
        """What it computes; where several fit, the first counts.

        What a pattern's check admits, `lower` must compute with the very bits of the reference.
        """

    @abstractmethod
    def lower(self, region: Region) -> KernelCall:
        """The C call that computes a region, with its constants packed."""
