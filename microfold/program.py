"""Compiled model before code generation: kernel calls, constants and memory offsets.

`compiler` builds a `Program`, `codegen` prints it, and `host`, `simulate` and the reports read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from microfold.analysis.pruning_proof import PruningProof
from microfold.analysis.ranges import NO_RANGES, Ranges
from microfold.analysis.relaxation import Relaxation
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.types import Array, TensorType
from microfold.ir.views import StoragePlaces
from microfold.kernels.call import KernelCall, Library
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection.candidates import Candidate
from microfold.ops.elementwise.expression import Expression
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.plan.arena import ArenaPlan
from microfold.plan.overlap import align
from microfold.plan.regions import Regions
from microfold.plan.stream.memory import StreamMemory
from microfold.support.notebook import html_table
from microfold.target import Target
from microfold.transform.requested.slide_window import Sliding


class Buffer(Struct, frozen=True):
    """Location of a value.

    Attributes:
        region: ``arena``, ``state``, ``constant``, ``input`` or ``output``. The caller owns the last two.
        offset: offset from the start of arena or state, in bytes; or the index of the input or output.
    """

    value: Value
    region: str
    offset: int

    @property
    def type(self) -> TensorType:
        return self.value.type


class Move(Struct, frozen=True):
    """Copy of a value.

    Attributes:
        zeros: whether the source is a constant of zeros, which needs no memory.
    """

    source: Buffer
    target: Buffer
    zeros: bool = False


class Block(Struct, frozen=True, eq=False):
    """Sequence of layers in a layer.

    Attributes:
        graph: graph that the layers compute.
        moves: copies after the last layer.
    """

    graph: Graph
    layers: tuple[Layer, ...]
    moves: tuple[Move, ...] = ()


class LoopPlan(Struct, frozen=True, eq=False):
    """Loop: a layer that repeats other layers.

    Attributes:
        begin: copies before the first iteration, of initial values to the memory of the loop's results.
        runs: iterations; with a condition, the maximum.
        condition: layers that run before each iteration; None if the loop has no condition.
        decision: the bool that the condition computes.
        may_stop: whether the loop may reach `runs` iterations before its condition ends it.
    """

    begin: tuple[Move, ...]
    runs: int
    body: Block
    condition: Block | None = None
    decision: Buffer | None = None
    may_stop: bool = False

    @property
    def blocks(self) -> tuple[tuple[Block, int], ...]:
        """The blocks, each with its maximum number of runs."""
        if self.condition is None:
            return ((self.body, self.runs),)
        return ((self.condition, self.runs + 1), (self.body, self.runs))

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Buffers that the loop itself reads and writes."""
        decision = (self.decision,) if self.decision is not None else ()
        return (*decision, *_ends(self.moves))

    def most(self, of_layer: Callable[[Layer], int | None]) -> int | None:
        """Return the sum over all layers and iterations; None if one is unknown."""
        sums = [(_total([of_layer(layer) for layer in block.layers]), runs) for block, runs in self.blocks]
        return _total([each * runs if each is not None else None for each, runs in sums])

    @property
    def moves(self) -> tuple[Move, ...]:
        """All copies."""
        return (*self.begin, *self.body.moves)


class BranchPlan(Struct, frozen=True, eq=False):
    """Branch: a layer that runs one of two blocks, whose results are in the same memory.

    Attributes:
        decision: the bool that selects the block.
        then: block that runs if the bool is true.
    """

    decision: Buffer
    then: Block
    otherwise: Block

    @property
    def blocks(self) -> tuple[tuple[Block, int], ...]:
        """The blocks, each with its maximum number of runs."""
        return ((self.then, 1), (self.otherwise, 1))

    @property
    def moves(self) -> tuple[Move, ...]:
        """All copies."""
        return (*self.then.moves, *self.otherwise.moves)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Buffers that the branch itself reads and writes."""
        return _ends(self.moves)

    def most(self, of_layer: Callable[[Layer], int | None]) -> int | None:
        """Return the larger sum of a block's layers; None if one is unknown."""
        sums = [_total([of_layer(layer) for layer in block.layers]) for block, _ in self.blocks]
        return None if None in sums else max(each for each in sums if each is not None)


class Layer(Struct, frozen=True, eq=False):
    """Kernel call of the schedule, or a C statement that controls other layers.

    Attributes:
        index: position in the schedule, which the layer hook of the generated C passes.
        name: C identifier, unique in the program, derived from the tensor name in the model.
        work: nodes that the call computes: `node`, or the nodes of the subgraph that it calls.
        estimated_instructions: instructions per call by the kernel's cost model; None for external code.
        estimated_cycles: cycles per call; None for external code or if the target has no cycle model.
        inputs: buffers that the call reads, in the order of the C arguments.
        outputs: location of the results right after the call.
        scratch: offset in the arena, in bytes, or None.
        candidates: kernels that were considered, see `selection.candidates.candidates`.
        control: loop or branch of other layers; None for a kernel call.
        measured_cycles: cycles per call from a database of measurements; None if it has none.
        fetched: offset in the arena, in bytes, to which constants are copied before the layer runs, or None.
        rows: output rows written by each call of a streamed layer, in order. `call` describes every call;
            MACs and estimates are totals. None: one call computes the whole tensor.
    """

    index: int
    name: str
    node: Node
    kernel: Kernel
    call: KernelCall
    work: tuple[Node, ...]
    macs: int
    estimated_instructions: int | None
    estimated_cycles: int | None
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: int | None
    candidates: tuple[Candidate, ...] = ()
    control: LoopPlan | BranchPlan | None = None
    measured_cycles: int | None = None
    fetched: int | None = None
    rows: tuple[int, ...] | None = None

    @property
    def blocks(self) -> tuple[tuple[Block, int], ...]:
        """Blocks of a loop or branch, each with its maximum number of runs."""
        return self.control.blocks if self.control is not None else ()

    @property
    def all_layers(self) -> Iterator[Layer]:
        """The layer itself, and all layers in it."""
        yield self
        for block, _ in self.blocks:
            for layer in block.layers:
                yield from layer.all_layers

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of all operators that the call computes, including fused ones."""
        return tuple(
            name
            for node in self.work
            for op in (node.op, *(step.op for step in node.epilogue))
            for name in (op.functions if isinstance(op, Expression) else (op.name,))
        )

    @property
    def label(self) -> str:
        """Name of the result in the model."""
        return self.node.outputs[0].name

    def __repr__(self) -> str:
        return f"<Layer {self.index} {self.name}: {self.node.op.name} by {self.kernel.name}>"


class StateSlot(Struct, frozen=True, eq=False):
    """Value that is kept between runs.

    Attributes:
        buffer: location.
        next: location of the new content at the end of a run; None: `buffer`, or it never changes.
    """

    buffer: Buffer
    next: Buffer | None


class Origin(Struct, frozen=True):
    """Origin of a program. It does not depend on the folder of the model file.

    Attributes:
        file: name of the model file, without folders.
        size: size in bytes.
        sha256: SHA-256 in hexadecimal digits.
        command: command line of the compilation; empty for the Python API.
    """

    file: str
    size: int
    sha256: str
    command: str = ""


def origin_of(path: Path, data: bytes, command: str = "") -> Origin:
    """Return the origin of a program that is compiled from a file with this content."""
    return Origin(path.name, len(data), hashlib.sha256(data).hexdigest(), command)


class Program(Struct, frozen=True, eq=False):
    """Model compiled for a target.

    Attributes:
        name: C identifier that prefixes all C names of the model.
        source: the graph as it was imported.
        graph: the optimised graph that the layers compute.
        arena: memory plan; its size includes scratch memory.
        context: settings of the passes.
        ranges: proved ranges of the integers in `graph`.
        pruned: proofs for the channels that `prune_constant_channels` removed.
        relaxations: changes by relaxed numerics; empty if the outputs are bit-identical.
        origin: None if the graph is not from a file.
        labels: class names of each output; empty if they are unknown.
        labels_ignored: reason why labels in the file are not used, or empty.
        measured_on: board or simulator of the measured cycles; empty if nothing was measured.
        measured_run: measured cycles of a whole run; None if this program was not measured.
        stream: memory of the streamed layers; None: all layers compute whole tensors.
        sliding: network over the window, if a run takes only new frames; else None.
        parts: sizes in bytes of the objects that form the arena, in order; empty if it is one object.
        regions: memories of context and constants; None if the target names none.
        kernels_proved: whether no choice of kernels needs fewer estimated cycles within the same flash and
            arena.
    """

    name: str
    source: Graph
    graph: Graph
    target: Target
    options: Options
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    layers: tuple[Layer, ...]
    state: tuple[StateSlot, ...]
    arena: ArenaPlan
    flash: int
    context: PassContext = field(default_factory=PassContext)
    ranges: Ranges = NO_RANGES
    pruned: tuple[PruningProof, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()
    origin: Origin | None = None
    labels: tuple[tuple[str, ...], ...] = ()
    labels_ignored: str = ""
    measured_on: str = ""
    measured_run: int | None = None
    stream: StreamMemory | None = None
    sliding: Sliding | None = None
    parts: tuple[int, ...] = ()
    regions: Regions | None = None
    kernels_proved: bool = False

    def __repr__(self) -> str:
        return (
            f"<Program {self.name} for {self.target.name}: {len(self.layers)} layers, "
            f"arena {self.arena.size:,} bytes>"
        )

    def _repr_html_(self) -> str:
        rows = [
            (each.index, each.name, each.node.op.name, each.kernel.name, each.macs, each.estimated_cycles)
            for each in self.layers
        ]
        columns = ("#", "layer", "operator", "kernel", "MACs", "estimated cycles")
        return html_table(
            f"{self.name} for {self.target.name}: arena {self.arena.size:,} bytes", columns, rows
        )

    @property
    def calls(self) -> tuple[Layer, ...]:
        """All layers that call a function, also in loops and branches."""
        found = (each for layer in self.layers for each in layer.all_layers)
        return tuple(layer for layer in found if layer.control is None)

    @property
    def may_stop(self) -> bool:
        """Whether some loop may reach its iteration limit before its condition ends it."""
        found = (each for layer in self.layers for each in layer.all_layers)
        return any(isinstance(layer.control, LoopPlan) and layer.control.may_stop for layer in found)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The optimised graph, and the graphs of all loops and branches."""
        inner = (each for layer in self.layers for each in layer.all_layers)
        return (self.graph, *(block.graph for layer in inner for block, _ in layer.blocks))

    @property
    def libraries(self) -> Mapping[Library, tuple[str, ...]]:
        """Libraries that the firmware must link, with the functions that the generated files call."""
        found: dict[Library, dict[str, None]] = {}
        for function in (layer.call.function for layer in self.calls):
            if function.library is not None:
                found.setdefault(function.library, {}).update(dict.fromkeys(function.calls))
        return {library: tuple(calls) for library, calls in found.items()}

    @property
    def pushed_input(self) -> int | None:
        """Index of the input that the caller passes row by row, or None."""
        if self.options.io != "rows":
            return None
        return next(index for index, buffer in enumerate(self.inputs) if buffer.region == "input")

    @property
    def without_trace(self) -> Program:
        """The program without tensor trace, which links without firmware, e.g. on this machine."""
        return replace(self, options=replace(self.options, taps=False)) if self.options.taps else self

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one inference."""
        return sum(layer.macs for layer in self.layers)

    @property
    def estimated_instructions(self) -> int | None:
        """Estimated instructions of one inference; None if a layer is external code."""
        return _total([layer.estimated_instructions for layer in self.layers])

    @property
    def estimated_cycles(self) -> int | None:
        """Estimated cycles of one inference; None for external code or without a cycle model."""
        return _total([layer.estimated_cycles for layer in self.layers])

    @property
    def arena_parts(self) -> tuple[int, ...]:
        """Sizes of the objects that form the arena, in bytes. None is 0: C has no empty objects."""
        unit = self.options.align
        return tuple(max(align(size, unit), unit) for size in self.parts or (self.arena.size,))

    def arena_part(self, offset: int) -> tuple[int, int]:
        """Return the index of the object that contains an arena offset, and the offset within it."""
        last = len(self.parts) - 1
        for index, size in enumerate(self.parts):
            if offset < size or index == last:
                return index, offset
            offset -= size
        return 0, offset

    @property
    def state_size(self) -> int:
        """Size of the data that is kept between runs, in bytes."""
        return max((slot.buffer.offset + slot.buffer.type.nbytes for slot in self.state), default=0)

    @property
    def inner_layers(self) -> tuple[Layer, ...]:
        """Layers in loops and branches, in the order of their indices in the layer hook."""
        return tuple(each for layer in self.layers for each in layer.all_layers if each is not layer)

    @property
    def moves(self) -> tuple[Move, ...]:
        """All copies of loops and branches."""
        found = (each for layer in self.layers for each in layer.all_layers)
        return tuple(m for layer in found if layer.control is not None for m in layer.control.moves)

    @property
    def weight_bytes(self) -> int:
        """Size of the constants in flash, in bytes: packed weights, channel records, tables, initial states.

        Equal arrays are stored once. Initial states are stored without repetitions.
        """
        stored = [(c.array, c.record) for layer in self.calls for c in layer.call.constants.values()]
        places = StoragePlaces(self.graphs)
        read = [buffer for layer in self.calls for buffer in layer.inputs]
        read += [move.source for move in self.moves if not move.zeros]
        stored += [(places.constant(buffer.value), "") for buffer in read if buffer.region == "constant"]
        units = (repeated_part(state.initial) for state in self.graph.state)
        stored += [(unit, "") for unit in units if unit.nbytes > 1]
        distinct = {constant_key(array, record): array.nbytes for array, record in stored}
        return sum(distinct.values())


def _ends(moves: Sequence[Move]) -> tuple[Buffer, ...]:
    sources = (move.source for move in moves if not move.zeros)
    return (*sources, *(move.target for move in moves))


def _total(estimates: Sequence[int | None]) -> int | None:
    known = [estimate for estimate in estimates if estimate is not None]
    return sum(known) if len(known) == len(estimates) else None


def repeated_part(array: Array) -> Array:
    """Return the part that an array repeats: a single byte, as few last axes as possible, or all of it."""
    data = np.frombuffer(array.tobytes(), np.uint8)
    if not data.size or (data == data[0]).all():
        return data[:1]
    for axis in reversed(range(array.ndim)):
        parts = array.reshape(-1, *array.shape[axis + 1 :])
        if len(parts) > 1 and all(part.tobytes() == parts[0].tobytes() for part in parts[1:]):
            return parts[:1]
    return array


ConstantKey = tuple[str, str, bytes]


def constant_key(array: Array, record: str = "") -> ConstantKey:
    """Return the key of a constant. Constants with equal keys are stored once in flash."""
    return record, array.dtype.str, array.tobytes()
