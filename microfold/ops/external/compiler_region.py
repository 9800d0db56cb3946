"""Boundaries of the regions of a graph for external code generators.

`annotate_target` inserts them, `merge_compiler_regions` removes some, and `partition_graph` removes the rest.
"""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, Tensor, TensorType


class _Boundary(Op, frozen=True):
    pattern: ClassVar[Pattern] = Pattern.OPAQUE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    compiler: str

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: Tensor) -> Array:
        return x.data


@register
class CompilerBegin(_Boundary, frozen=True):
    """Start of a region: readers of the result belong to the region.

    Attributes:
        compiler: external code generator of the region.
    """

    name: ClassVar[str] = "compiler_begin"


@register
class CompilerEnd(_Boundary, frozen=True):
    """End of a region: the operand is computed in the region.

    Attributes:
        compiler: external code generator of the region.
        composite: name of the pattern that the region matches; empty if it matches several.
    """

    name: ClassVar[str] = "compiler_end"

    composite: str = ""
