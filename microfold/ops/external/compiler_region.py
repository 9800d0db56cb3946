"""Where the part of a graph begins and ends that an external code generator is to take.

`annotate_target` puts them in, `merge_compiler_regions` takes some out again, `partition_graph` the others.
"""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, Tensor, TensorType
from microfold.support.frozen import frozen


@frozen
class _Boundary(Op):
    pattern: ClassVar[Pattern] = Pattern.OPAQUE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    compiler: str

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: Tensor) -> Array:
        return x.data


@register
@frozen
class CompilerBegin(_Boundary):
    """Behind it, the value belongs to a region.

    Attributes:
        compiler: the external code generator that takes the region.
    """

    name: ClassVar[str] = "compiler_begin"


@register
@frozen
class CompilerEnd(_Boundary):
    """Before it, the value belonged to a region.

    Attributes:
        compiler: the external code generator that takes the region.
        composite: the pattern whose match the region is; empty if it is several.
    """

    name: ClassVar[str] = "compiler_end"

    composite: str = ""
