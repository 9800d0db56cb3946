"""Kernel descriptors: what a kernel can do, what it costs, and how a layer becomes a call of it.

A kernel is a C function template. Everything that a template needs is computed here in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import ClassVar, TypeVar

from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.kernels.call import KernelCall
from microfold.kernels.cost.code import CodeBytes, guessed
from microfold.kernels.cost.code_rows import estimate
from microfold.kernels.cost.coefficients import Row, closest, find_row
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Fields
from microfold.kernels.layer import LayerContext
from microfold.kernels.loading import OWN, load_all_kernels
from microfold.kernels.names import check_name
from microfold.ops.rows import ROWS
from microfold.target.description import FEATURES

# Calls of `Kernel.terms` that are remembered: instructions and cycles are asked for one after the other.
LATEST_TERMS = 64


class Trade(Enum):
    """A property of a kernel that costs speed or flash, for people who read `microfold kernels`."""

    ONE_FOR_ALL = "one function serves all layers of an operator, and is slower than what is made for a layer"
    LONG_CODE = "its code is long, and saves a little time for each output"
    WINDOW_CODE = "its code is long, and for layers with the same window and input channels"
    IMAGE_CODE = "its code is for layers with one shape of image"
    UNROLLED = "its loop is written out"
    WRITTEN_OUT = "its loop is written out, as long as some layers need it: their function is for these alone"
    LONG_ITERATIONS = "an iteration of its loop computes several blocks"
    SCRATCH = "it takes up to twice the scratch"
    INPUT_SCRATCH = "it brings inputs into another form in the scratch, as many bytes as that takes"
    TILE_SCRATCH = "it keeps transformed tiles of inputs in the scratch, however small the image is"
    SPARE_SCRATCH = "it takes more scratch than its kernel needs, as far as larger layers leave it over"
    TABLE = "it has a table of results"
    STEP_TABLE = "it has a table of what takes many steps to compute"
    WIDE_WEIGHTS = "its weights take twice as many bytes"
    TRANSFORMED_WEIGHTS = "its weights take several times as many bytes"
    RESTS = "some of its weights are there twice"
    FOUR_BITS = "its weights are packed in 4 bits, and unpacked by every call"
    BYTE_WEIGHTS = "its float32 weights are kept as int8 and steps, and converted for every product or two"
    HALF_FLOATS = "its weights are packed as float16, and converted by every call"

    # Each is there once; `Enum` hashes names anew, by a function in Python.
    __hash__ = object.__hash__


# Instructions of a part of a kernel that nothing is known of.
GUESS = 10.0


class Kernel:
    """Base of all kernels: what each can do. What a model should use is decided in `selection`.

    Each has a docstring of its own: how it computes, how its constants lie, and what proves that its bits are
    the reference's. What siblings share is in that of their base.

    Class attributes:
        name: see `names`, e.g. ``s8_conv2d__dsp_4x2``.
        op: the operator it computes.
        features: what the target must have.
        superseded_by: features of cores that have better kernels for the same layers, at every level.
        trades: what it gives up, for people.
        code: a guess of the bytes of code of one function, for such as were not measured.
        like: the kernel whose parts take about what its own take, until these are measured.
        fields: all that the layer struct of its function can have, in order.
        pitch_fields: names of those that find rows in a whole image, and nothing else; where it `reads_rows`.
    """

    name: str
    op: ClassVar[type[Op]]
    features: ClassVar[frozenset[str]] = frozenset()
    superseded_by: ClassVar[frozenset[str]] = frozenset()
    trades: frozenset[Trade] = frozenset()
    code: ClassVar[int] = 600
    like: ClassVar[str | None] = None
    fields: ClassVar[Fields] = ()
    pitch_fields: ClassVar[frozenset[str]] = frozenset()

    def is_for(self, node: Node) -> bool:
        """Whether nodes of such a form are what it is made for; else it is not even considered."""
        del node
        return True

    def supports(self, layer: LayerContext) -> str | None:
        """None if the kernel computes this node bit for bit, else the reason why not."""
        raise NotImplementedError

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        """The ways in which it can compute a layer that it supports: itself with its choices made.

        They differ in time, memory and constants. Everything below is asked of variants.
        """
        del layer
        return (self,)

    def terms(self, layer: LayerContext) -> Terms:
        """How often each part of its code runs in one call: the loops, and no more.

        What a part takes is in the data files of `cost.coefficients`; until it is measured, `guess` says.
        """
        raise NotImplementedError

    def guess(self, term: str) -> float:
        """Estimated instructions of a part that no data file knows; default: about those of a short loop."""
        del term
        return GUESS

    def cost(self, layer: LayerContext) -> float:
        """Estimated instructions of one call; compared only between kernels of one node and target."""
        return self.price(layer, _terms(self, layer))

    def cost_alone(self, layer: LayerContext) -> float:
        """The same where no other layer calls its function, so that compilers make it for this one.

        What they make of the function of a kernel that it is like tells nothing of its own.
        """
        row = find_row(self.name, layer.target.features)
        return (
            self.cost(layer)
            if row is None or not row.alone
            else self.price(layer, _terms(self, layer), row.alone)
        )

    def cycles(self, layer: LayerContext) -> float:
        """Estimated cycles of one call, on the core that the target is most like."""
        row = self.row(layer.target.features)
        if row is None:
            return self.cost(layer) * closest(layer.target.features).cycles_per_instruction
        return self._cycles(layer, row.cycles)

    def cycles_alone(self, layer: LayerContext) -> float:
        """The same where no other layer calls its function."""
        row = find_row(self.name, layer.target.features)
        if row is not None and row.alone_cycles:
            return self._cycles(layer, row.alone_cycles)
        cycles, shared = self.cycles(layer), self.cost(layer)
        return cycles * self.cost_alone(layer) / shared if shared > 0 else cycles

    def _cycles(self, layer: LayerContext, known: Mapping[str, float]) -> float:
        """Cycles by those of each part."""
        terms = _terms(self, layer)
        cycles, instructions = self.price(layer, terms, known), self.price(layer, terms)
        # `cost` may have more than the row, which may be that of a kernel that it is like.
        return cycles * self.cost(layer) / instructions if instructions > 0 else cycles

    def price(
        self, layer: LayerContext, terms: Mapping[str, float], known: Mapping[str, float] | None = None
    ) -> float:
        """Parts that run so often, in estimated instructions.

        Args:
            known: what each part takes, if not instructions where other layers call the function, too.
        """
        if known is None:
            known = self._instructions(layer)
        return sum(n * (known[term] if term in known else self.guess(term)) for term, n in terms.items())

    def coefficient(self, layer: LayerContext, term: str) -> float:
        """Estimated instructions of a part that runs once."""
        return self.price(layer, {term: 1})

    def row(self, features: frozenset[str]) -> Row | None:
        """What is known of its parts on such a core; until they are measured, of those that they are like."""
        own = find_row(self.name, features)
        return own if own is not None or self.like is None else find_row(self.like, features)

    def _instructions(self, layer: LayerContext) -> Mapping[str, float]:
        row = self.row(layer.target.features)
        return row.instructions if row is not None else {}

    @property
    def function_bytes(self) -> int:
        """Estimated bytes of code of one function of this variant: `code`, if they are all alike."""
        return self.code

    def code_bytes(self, layer: LayerContext, call: KernelCall) -> CodeBytes:
        """Return the estimated code of the function of a call, in bytes.

        Functions that no data file has, and those of libraries, count what the kernel guesses.

        Args:
            call: the kernel's call for this layer, or for some rows of it.
        """
        known = None
        if call.function.library is None:
            known = estimate(call, layer.target.features, small=layer.compiled_for_size)
        return known or guessed(self.name, self.code, self.function_bytes)

    def lower(self, layer: LayerContext) -> KernelCall:
        """The call, with all constants packed."""
        raise NotImplementedError

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        """Indices of the node's arguments that the call takes as pointers, in C order.

        Default: the first one, which may be a constant that was too large to fold, and all other inputs that
        are there and not constant. Only kernels that take operands of an epilogue name these.
        """
        inputs = enumerate(layer.node.inputs)
        return tuple(i for i, v in inputs if v is not None and (i == 0 or layer.array(i) is None))

    def work(self, layer: LayerContext) -> tuple[Node, ...]:
        """The nodes that one call computes: the layer's own, but for regions of external code generators."""
        return (layer.node,)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        """How the first output may lie over data input `index`.

        Returns:
            The smallest allowed ``input address - output address``, bytes (0: in place; negative: the output
            may start behind the input's start), or None if the two must be disjoint.
        """
        return None

    def in_place(self, layer: LayerContext, index: int) -> bool:
        """Whether the first output may start exactly where data input `index` does, and nowhere else over it.

        For kernels that finish one channel after the other: each output element lies on an input element of
        the same channel. Only asked where `overlap` is None.
        """
        return False

    def replaces(self, layer: LayerContext) -> Sequence[tuple[int, int]]:
        """Inputs and outputs, by their indices, that may be the same bytes: one begins as the other."""
        del layer
        return ()

    def row_alignment(self, layer: LayerContext) -> int:
        """What the addresses of its images' rows, inputs and output, must be multiples of, bytes.

        Whole tensors start at multiples of 8, but rows wherever the ones before them end. Scratch is always
        aligned.

        Returns:
            A power of two; 1: what the elements need. Most kernels need no more, since pixels of 3 channels
            begin anywhere in an image, too.
        """
        return 1

    def row_granularity(self, layer: LayerContext) -> int:
        """Output rows that it computes together.

        A band may have any number of rows that `supports` admits, but those left over cost as much as so
        many.
        """
        return 1

    def reads_rows(self, layer: LayerContext) -> bool:
        """Whether its code can find each row of its first input by an address, see `band.lower_by_rows`.

        Those that find the inputs under a window row by row can.
        """
        return False

    def rows_held(self, layer: LayerContext) -> int:
        """Output rows in whose course it may read all that they need, if it `reads_rows`; h.

        When it writes output row r, it reads no more of the input than what the rows from ``r - r % h`` on
        need, see `band.first_row_held`. `overlap` and `in_place` compare addresses in a whole image, and say
        nothing of rows that lie anywhere.

        Returns:
            Default: all rows of the output: those that finish one channel after the other read all of the
            input to the end.
        """
        return layer.node.output.type.shape[ROWS]


@lru_cache(LATEST_TERMS)
def _terms(kernel: Kernel, layer: LayerContext) -> Terms:
    return kernel.terms(layer)


KERNELS: list[Kernel] = []
KernelType = TypeVar("KernelType", bound=Kernel)


def register(kernel: type[KernelType]) -> type[KernelType]:
    """Class decorator: adds the kernel to the one list that selection, tests and benchmarks read.

    Raises:
        ValueError: the name breaks the grammar or is taken, or the kernel wants features that no target has.
    """
    if not kernel.__module__.startswith(OWN):
        load_all_kernels()  # none of microfold's may find its name taken later
    added = kernel()
    check_name(added.name)
    if added.name in [other.name for other in KERNELS]:
        raise ValueError(f"{kernel.__name__}: a kernel's name must be its own; there is a {added.name}")
    unknown = sorted(added.features - FEATURES.keys())
    if unknown:
        raise ValueError(
            f"{added.name} wants {', '.join(unknown)}; the features of targets are {', '.join(FEATURES)}"
        )
    KERNELS.append(added)
    return kernel
