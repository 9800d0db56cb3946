"""Base class and registry of kernels: support checks, cost model, memory rules and lowering.

A kernel is a C function template together with a Python descriptor, a subclass of `Kernel`. The descriptor
answers the compiler's questions about one layer. The template only prints what the descriptor computed::

    supports(layer)   can the kernel compute the layer bit for bit?        None, or the reason why not
        |
    variants(layer)   descriptors with all free choices made               differ in time, memory, constants
        |
    cost, cycles, overlap, ...                                             compared by `kernels.selection`
        |
    lower(layer)      KernelCall: C function, struct fields, constants     rendered by `codegen`

Costs are counts times coefficients: `Kernel.terms` counts how often each part of the code runs, and a data
file of `cost.coefficients` has the instructions and cycles of that part on one core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import ClassVar, TypeVar

from microfold.errors import DeclarationError
from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.kernels.call import KernelCall
from microfold.kernels.cost.code import CodeBytes, guessed
from microfold.kernels.cost.code_rows import estimate
from microfold.kernels.cost.coefficients import CostRow, closest, find_row
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Fields
from microfold.kernels.layer import LayerContext
from microfold.kernels.loading import OWN, load_all_kernels
from microfold.kernels.names import check_name
from microfold.ops.rows import ROWS
from microfold.target.description import FEATURES

# Size of the cache of `Kernel.terms`. Selection asks for instructions and cycles of a layer one after the
# other, so that a small cache is enough.
TERMS_CACHE_SIZE = 64


class ResourceTradeoff(Enum):
    """Resource that a kernel spends to gain speed or to save flash, for readers of `microfold kernels`."""

    # Code size.
    GENERIC_FUNCTION = "one function for all layers of an operator, slower than one specialised for a layer"
    LONG_CODE = "long code that saves little time for each output"
    WINDOW_CODE = "long code, specialised for one window shape and one number of input channels"
    IMAGE_CODE = "code specialised for one image shape"
    UNROLLED = "unrolled loop"
    FULLY_UNROLLED = "loop unrolled to one trip count, in a function for layers with this trip count only"
    LONG_ITERATIONS = "loop whose iteration computes several blocks"
    # RAM.
    SCRATCH = "up to twice the scratch memory"
    INPUT_SCRATCH = "scratch memory for inputs in another layout"
    TILE_SCRATCH = "scratch memory for transformed input tiles, of a size that does not shrink with the image"
    SPARE_SCRATCH = "more scratch memory than needed, if larger layers determine the arena size anyway"
    # Constants.
    TABLE = "lookup table of results"
    STEP_TABLE = "lookup table of an intermediate result that needs many instructions to compute"
    WIDE_WEIGHTS = "weights of twice the bytes"
    TRANSFORMED_WEIGHTS = "weights of several times the bytes"
    DUPLICATED_WEIGHTS = "some weights stored twice"
    # Time, spent to save constants.
    FOUR_BITS = "4-bit weights, unpacked by every call"
    BYTE_WEIGHTS = "float32 weights stored as int8 with scales, converted for every product or two"
    HALF_FLOATS = "weights stored as float16, converted by every call"

    # Members are singletons, so that their identity is a valid hash. `Enum.__hash__` is slower: it hashes the
    # name in Python.
    __hash__ = object.__hash__


# Instructions of one run of a code part that no data file has measured.
DEFAULT_COEFFICIENT = 10.0


class Kernel:
    """Base class of all kernels. It describes one implementation; `kernels.selection` chooses between them.

    The docstring of a subclass states the algorithm, the layout of its constants, and the proof that its
    results equal the reference's bit for bit. Siblings share the docstring of their common base class.

    Class attributes:
        name: unique name in the grammar of `names`, e.g. ``s8_conv2d__dsp_4x2``.
        op: operator that the kernel computes.
        features: target features that the kernel requires.
        superseded_by: features of cores that have a better kernel for the same layers at every optimisation
            level. On these cores the kernel is rejected.
        trades: resources that the kernel spends, for information only.
        code: default code size of one function, in bytes, if it was not measured.
        like: name of a kernel whose cost coefficients are used until this kernel's own are measured.
        fields: all fields that the layer struct of its function can have, in order.
        pitch_fields: names of the fields whose only use is to find rows in a contiguous image. They are left
            out if the rows are passed as an indirection buffer, see `supports_indirection`.
    """

    name: str
    op: ClassVar[type[Op]]
    features: ClassVar[frozenset[str]] = frozenset()
    superseded_by: ClassVar[frozenset[str]] = frozenset()
    trades: frozenset[ResourceTradeoff] = frozenset()
    code: ClassVar[int] = 600
    like: ClassVar[str | None] = None
    fields: ClassVar[Fields] = ()
    pitch_fields: ClassVar[frozenset[str]] = frozenset()

    def is_for(self, node: Node) -> bool:
        """Return whether the node has the form that the kernel is made for.

        If not, the kernel is not considered at all, and is not listed among the rejected ones.
        """
        del node
        return True

    def supports(self, layer: LayerContext) -> str | None:
        """Return None if the kernel computes this layer bit for bit, else the reason why it does not."""
        raise NotImplementedError

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        """Return the kernel's variants for a layer that it supports: copies with all free choices made.

        Variants differ in time, memory and constants. All methods below are called on variants.
        """
        del layer
        return (self,)

    def terms(self, layer: LayerContext) -> Terms:
        """Count how often each part of the code runs in one call, from the trip counts of the loops alone.

        The data files of `cost.coefficients` have the cost of one run of a part. A part that no file has
        measured costs `default_coefficient`.
        """
        raise NotImplementedError

    def default_coefficient(self, term: str) -> float:
        """Return the default coefficient: estimated instructions of a part that no data file has measured."""
        del term
        return DEFAULT_COEFFICIENT

    def cost(self, layer: LayerContext) -> float:
        """Estimate the instructions of one call.

        Estimates are comparable only between kernels for the same node and target.
        """
        return self.price(layer, _terms(self, layer))

    def single_caller_cost(self, layer: LayerContext) -> float:
        """Estimate the instructions of one call if no other layer calls the function.

        C compilers then specialise the function for the layer's constants. Only measurements of this kernel
        count: the specialised function of the kernel named by `like` may be quite different.
        """
        row = find_row(self.name, layer.target.features)
        return (
            self.cost(layer)
            if row is None or not row.alone
            else self.price(layer, _terms(self, layer), row.alone)
        )

    def cycles(self, layer: LayerContext) -> float:
        """Estimate the cycles of one call, on the measured core that is closest to the target."""
        row = self.row(layer.target.features)
        if row is None:
            return self.cost(layer) * closest(layer.target.features).cycles_per_instruction
        return self._cycles(layer, row.cycles)

    def single_caller_cycles(self, layer: LayerContext) -> float:
        """Estimate the cycles of one call if no other layer calls the function."""
        row = find_row(self.name, layer.target.features)
        if row is not None and row.alone_cycles:
            return self._cycles(layer, row.alone_cycles)
        cycles, shared = self.cycles(layer), self.cost(layer)
        return cycles * self.single_caller_cost(layer) / shared if shared > 0 else cycles

    def _cycles(self, layer: LayerContext, known: Mapping[str, float]) -> float:
        """Estimate the cycles of one call from the cycles of one run of each part."""
        terms = _terms(self, layer)
        cycles, instructions = self.price(layer, terms, known), self.price(layer, terms)
        # A subclass may override `cost` with another estimate than the sum of its terms, and the row may
        # belong to the kernel named by `like`: scale the cycles by the same factor as the instructions.
        return cycles * self.cost(layer) / instructions if instructions > 0 else cycles

    def price(
        self, layer: LayerContext, terms: Mapping[str, float], known: Mapping[str, float] | None = None
    ) -> float:
        """Return the sum of counts times coefficients, in the unit of the coefficients.

        Args:
            terms: number of runs of each part.
            known: cost of one run of each part. Default: the instructions of a function that several layers
                share. Parts that are missing cost `default_coefficient`.
        """
        if known is None:
            known = self._instructions(layer)
        return sum(
            n * (known[term] if term in known else self.default_coefficient(term))
            for term, n in terms.items()
        )

    def coefficient(self, layer: LayerContext, term: str) -> float:
        """Return the estimated instructions of one run of a part."""
        return self.price(layer, {term: 1})

    def row(self, features: frozenset[str]) -> CostRow | None:
        """Return the cost coefficients of the closest core, or the `like` kernel's if this one has none."""
        own = find_row(self.name, features)
        return own if own is not None or self.like is None else find_row(self.like, features)

    def _instructions(self, layer: LayerContext) -> Mapping[str, float]:
        row = self.row(layer.target.features)
        return row.instructions if row is not None else {}

    @property
    def function_bytes(self) -> int:
        """Default code size of this variant's function, in bytes: `code`, unless variants differ in size."""
        return self.code

    def code_bytes(self, layer: LayerContext, call: KernelCall) -> CodeBytes:
        """Estimate the code size of a call's function, in bytes.

        Library functions, and functions that no data file has, use the kernel's defaults.

        Args:
            call: the kernel's call for this layer, or for some rows of it.
        """
        known = None
        if call.function.library is None:
            known = estimate(call, layer.target.features, small=layer.compiled_for_size)
        return known or guessed(self.name, self.code, self.function_bytes)

    def lower(self, layer: LayerContext) -> KernelCall:
        """Lower the layer to a call with packed constants."""
        raise NotImplementedError

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        """Return the indices of the node's arguments that the C function receives as pointers, in C order.

        Default: the first input, and every other input that is present and not constant. The first input may
        be a constant that was too large to fold. Kernels that read operands of an epilogue override this.
        """
        inputs = enumerate(layer.node.inputs)
        return tuple(i for i, v in inputs if v is not None and (i == 0 or layer.array(i) is None))

    def work(self, layer: LayerContext) -> tuple[Node, ...]:
        """Return the nodes that one call computes.

        This is the layer's node, or all nodes of a region that an external code generator compiles.
        """
        return (layer.node,)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        """Return how far the first output may overlap data input `index` in memory.

        ::

            distance = input address - output address

            input               |iiiiiiiiiiii|
            output      |oooooooooooo|              distance > 0: the output starts first
            output              |oooooooooooo|      distance = 0: computed in place
            output                  |oooooooooooo|  distance < 0: the input starts first

        Returns:
            The smallest allowed distance in bytes, or None if the two must be disjoint.
        """
        return None

    def in_place(self, layer: LayerContext, index: int) -> bool:
        """Return whether the first output may start exactly at the address of data input `index`.

        This is for kernels that finish one channel after the other. Only at distance 0 does every output
        element overwrite an input element of its own channel. Asked only if `overlap` is None.
        """
        return False

    def replaces(self, layer: LayerContext) -> Sequence[tuple[int, int]]:
        """Return pairs (input index, output index) that may share storage, such as loop-carried values.

        The output starts with the contents of the input, and the call updates it in place.
        """
        del layer
        return ()

    def row_granularity(self, layer: LayerContext) -> int:
        """Return the number of output rows that the kernel computes together.

        A band may have any number of rows that `supports` accepts. An incomplete group of rows at its end
        costs as much as a full one.
        """
        return 1

    def supports_indirection(self, layer: LayerContext) -> bool:
        """Return whether the C code can read its first input through an indirection buffer.

        The buffer is a table of row addresses, see `band.lower_by_rows`. Kernels that gather the inputs of a
        window row by row can use it.
        """
        return False

    def row_release_granularity(self, layer: LayerContext) -> int:
        """Return h, the number of output rows after which the kernel releases input rows.

        While the kernel writes output row r, it may still read every input row that output rows from
        ``r - r % h`` on need, and no earlier one, see `band.first_row_held`. `overlap` and `in_place` do not
        apply to an indirection buffer, because they compare addresses in contiguous images.

        Returns:
            h in rows, for kernels that support an indirection buffer. Default: the output height, because
            kernels that finish one channel after the other read the whole input until the end.
        """
        return layer.node.output.type.shape[ROWS]


@lru_cache(TERMS_CACHE_SIZE)
def _terms(kernel: Kernel, layer: LayerContext) -> Terms:
    return kernel.terms(layer)


KERNELS: list[Kernel] = []
KernelType = TypeVar("KernelType", bound=Kernel)


def define(base: type[Kernel], name: str, op: type[Op], doc: str, **attributes: object) -> None:
    """Register a kernel that differs from its base class in class attributes only.

    Args:
        doc: docstring of the kernel.
        attributes: class attributes in addition to its name and operator.
    """
    common = {"__module__": base.__module__, "__doc__": doc, "name": name, "op": op}
    register(type(name, (base,), common | attributes))


def register(kernel: type[KernelType]) -> type[KernelType]:
    """Add a kernel to `KERNELS`, the list that selection, tests and benchmarks read. Class decorator.

    Raises:
        DeclarationError: the name breaks the grammar or is taken, the kernel requires an unknown feature, or
            it has no operator.
    """
    if not kernel.__module__.startswith(OWN):
        load_all_kernels()  # A plug-in must not use the name of a built-in kernel that is loaded later.
    added = kernel()
    check_name(added.name)
    if added.name in [other.name for other in KERNELS]:
        raise DeclarationError(
            f"{kernel.__name__}: a kernel's name must be unique; {added.name} is taken: use another variant"
        )
    unknown = sorted(added.features - FEATURES.keys())
    if unknown:
        raise DeclarationError(
            f"{added.name} requires unknown features {', '.join(unknown)}; features: {', '.join(FEATURES)}; "
            "FEATURES in microfold/target/description.py defines them"
        )
    if not hasattr(added, "op"):
        raise DeclarationError(
            "a kernel must have the operator that it computes as the class attribute op; "
            f"{added.name} has none: add op = Maximum, for example"
        )
    KERNELS.append(added)
    return kernel
