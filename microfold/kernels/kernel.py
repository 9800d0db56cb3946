"""Kernel descriptors: what a kernel can do, what it costs, and how a node becomes a call of it.

A kernel is a C function template. Everything that a template needs is computed here in Python: compile-time
choices go into the `CFunction`'s specification (functions with equal specifications are emitted once), the
numbers and packed constants of one layer into the `KernelCall`'s parameters: a `const` struct in flash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from microfold.analysis.interval import Range, full_range
from microfold.analysis.product_sum import Accumulator
from microfold.analysis.ranges import Ranges
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.ir.types import Array
from microfold.kernels.names import check_name
from microfold.options import Options
from microfold.target import Target
from microfold.target.description import FEATURES

SpecValue = int | str | bool | tuple[int, ...] | tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Constant:
    """A packed constant.

    Attributes:
        label: ends its name in the generated C, e.g. ``conv1_weights``.
        record: C struct type of one row (a helper of ``templates/simd``); empty for plain elements.
        alignment: its address is a multiple of this many bytes; 1: what the elements need.
    """

    label: str
    array: Array
    record: str = ""
    alignment: int = 1


Parameter = int | float | Constant


@dataclass(frozen=True)
class Library:
    """Code that is not generated, and that the firmware must link.

    Attributes:
        name: what people call it, with the versions that fit, e.g. ``CMSIS-NN 7.0.0 or later``.
        headers: to include.
        prelude: template under ``templates/`` of what stands behind the includes; empty for nothing.
        stand_in: templates, by the names of the files they give, of code that takes the library's place where
            there is none: on the host and on simulated cores.
        templates: folder where its templates and those of its functions are; None: those of microfold.
    """

    name: str
    headers: tuple[str, ...]
    prelude: str = ""
    stand_in: tuple[tuple[str, str], ...] = ()
    templates: Path | None = None


@dataclass(frozen=True)
class CFunction:
    """One C function of the generated code.

    Attributes:
        template: path under ``templates/``; renders the layer struct and the function.
        name: base of the C name, e.g. ``s8_conv2d__dsp_4x2``.
        spec: compile-time choices, in a fixed order.
        library: what it calls; None if it stands for itself.
        calls: names of the library's functions that it calls.
    """

    template: str
    name: str
    spec: tuple[tuple[str, SpecValue], ...] = ()
    library: Library | None = None
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class KernelCall:
    """One call of a function.

    The C call is ``function(&layer, inputs…, outputs…, scratch)``: data inputs (see `Kernel.data_inputs`)
    and outputs as pointers, scratch only if there is any.

    Attributes:
        parameters: fields of the layer struct, by name.
        scratch: bytes of arena needed only during the call.
    """

    function: CFunction
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    scratch: int = 0

    @property
    def constants(self) -> dict[str, Constant]:
        return {name: p for name, p in self.parameters.items() if isinstance(p, Constant)}


@dataclass(frozen=True)
class LayerContext:
    """A node with what a kernel may know about it at compile time.

    Attributes:
        ranges: what is proved about the graph's integers; None where nothing has been looked into.
    """

    node: Node
    graph: Graph
    target: Target
    options: Options
    ranges: Ranges | None = None

    def array(self, index: int) -> Array | None:
        """The constant behind input `index`; None if absent or computed."""
        if index >= len(self.node.inputs):
            return None
        return self.graph.array(self.node.inputs[index])

    def present(self, index: int) -> bool:
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def range(self, index: int) -> Range:
        """What an integer input can hold, per channel: what is proved, or all that its type can."""
        value = self.node.inputs[index]
        assert value is not None
        known = self.ranges.values.get(value) if self.ranges is not None else None
        return known if known is not None else full_range(value.type)

    def sums(self) -> Accumulator | None:
        """What the sums of a product sum can be, where it is proved."""
        return self.ranges.accumulators.get(self.node) if self.ranges is not None else None


class Kernel:
    """Base of all kernels.

    Class attributes:
        name: a grammar, ``<type>_<operator>__<variant>``, e.g. ``s8_conv2d__dsp_4x2``.
        op: the operator it computes.
        features: what the target must have.
        packed: its weights are packed closer than those of other kernels, which is preferred to fewer
            instructions unless speed is all that counts.
        code: estimated bytes of code of one function, compiled with -Os; see `smallest`.
    """

    name: str
    op: ClassVar[type[Op]]
    features: ClassVar[frozenset[str]] = frozenset()
    packed: ClassVar[bool] = False
    code: ClassVar[int] = 600

    def supports(self, site: LayerContext) -> str | None:
        """None if the kernel computes this node bit for bit, else the reason why not."""
        raise NotImplementedError

    def cost(self, site: LayerContext) -> float:
        """Estimated instructions of one call; compared only between kernels of one node and target."""
        raise NotImplementedError

    def cycles_per_instruction(self, site: LayerContext) -> float:
        """About what the tables of `timing` give.

        Where speed is all that counts, it tells kernels that hardly wait for loads from others.
        """
        return 1.53

    def lower(self, site: LayerContext) -> KernelCall:
        """The call, with all constants packed."""
        raise NotImplementedError

    def data_inputs(self, site: LayerContext) -> tuple[int, ...]:
        """Indices of the node's inputs that the call takes as pointers, in C order.

        Default: the first one, which may be a constant that was too large to fold, and all others that are
        there and not constant.
        """
        inputs = enumerate(site.node.inputs)
        return tuple(i for i, v in inputs if v is not None and (i == 0 or site.array(i) is None))

    def work(self, site: LayerContext) -> tuple[Node, ...]:
        """The nodes that one call computes: the site's own, but for regions of external code generators."""
        return (site.node,)

    def overlap(self, site: LayerContext, index: int) -> int | None:
        """How the first output may lie over data input `index`.

        Returns:
            The smallest allowed ``input address - output address``, bytes (0: in place; negative: the output
            may start behind the input's start), or None if the two must be disjoint.
        """
        return None

    def in_place(self, site: LayerContext, index: int) -> bool:
        """Whether the first output may start exactly where data input `index` does, and nowhere else over it.

        For kernels that finish one channel after the other: each output element lies on an input element of
        the same channel. Only asked where `overlap` is None.
        """
        return False


KERNELS: list[Kernel] = []


def register(kernel: type[Kernel]) -> type[Kernel]:
    """Class decorator: adds the kernel to the one list that selection, tests and benchmarks read.

    Raises:
        ValueError: the name breaks the grammar or is taken, or the kernel wants features that no target has.
    """
    added = kernel()
    check_name(added.name)
    if any(other.name == added.name for other in KERNELS):
        raise ValueError(f"{kernel.__name__}: a kernel's name must be its own; there is a {added.name}")
    unknown = sorted(added.features - FEATURES.keys())
    if unknown:
        raise ValueError(
            f"{added.name} wants {', '.join(unknown)}; the features of targets are {', '.join(FEATURES)}"
        )
    KERNELS.append(added)
    return kernel
