"""Base class of external code generators: a name, a pattern table, and an emitter for matched regions.

The passes `annotate_target`, `merge_compiler_regions` and `partition_graph` turn every part of a model that
matches a pattern into a function. `External.lower` turns a function into one call in the generated C.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.pattern_table import PatternEntry
from microfold.kernels.call import KernelCall
from microfold.kernels.layer import LayerContext
from microfold.options import Options
from microfold.target import Target


class ExternalRegion(Struct, frozen=True):
    """A part of a model for an external code generator.

    Attributes:
        body: subgraph with its constants. Its inputs are the first pointers that the C function receives, and
            its outputs the next ones. Clips are fused into the nodes before them.
        composite: name of the pattern that matched; empty if several matched.
    """

    body: Graph
    composite: str
    target: Target
    options: Options

    def layer(self, node: Node | None = None) -> LayerContext:
        """Return a node of the body as kernels see it; the last one by default."""
        return LayerContext(node or self.body.nodes[-1], self.body.constants, self.target)


class External(ABC):
    """Base class of external code generators. Instances have no state.

    Class attributes:
        name: name in the user interface, e.g. ``cmsis-nn``.
        automatic: whether it is used without --external, because no other code computes its patterns.
        merges: whether a region may consist of several matches; otherwise every match is a region.
    """

    name: str
    automatic: bool = False
    merges: bool = False

    @property
    @abstractmethod
    def patterns(self) -> Sequence[PatternEntry]:
        """Patterns that it computes; if several match, the first one applies.

        For every match that a pattern's check accepts, the code must be bit-identical to the reference.
        """

    @abstractmethod
    def lower(self, region: ExternalRegion) -> KernelCall:
        """Return the C call that computes a region, with its constants packed."""
