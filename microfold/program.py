"""The compiled model before it becomes text: what to call, with which constants, at which offsets.

`compiler` builds it; `codegen` prints it; `host`, `simulate` and the reports read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from microfold.analysis.pruning_proof import PruningProof
from microfold.analysis.ranges import NO_RANGES, Ranges
from microfold.analysis.relaxation import Relaxation
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.types import Array, TensorType
from microfold.ir.views import StoragePlaces
from microfold.kernels.call import KernelCall, Library
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection.cheapest import Candidate
from microfold.ops.elementwise.expression import Expression
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.plan.arena import ArenaPlan
from microfold.plan.overlap import align
from microfold.plan.regions import Regions
from microfold.plan.stream.memory import StreamMemory
from microfold.support.frozen import frozen
from microfold.target import Target
from microfold.transform.requested.slide_window import Sliding


@frozen
class Buffer:
    """Where one value lies.

    Attributes:
        region: ``arena``, ``state``, ``constant``, ``input`` or ``output`` (the caller's).
        offset: bytes from the start of arena or state; the index of the caller's input or output.
    """

    value: Value
    region: str
    offset: int

    @property
    def type(self) -> TensorType:
        return self.value.type


@frozen
class Move:
    """A copy of a value.

    Attributes:
        zeros: the source is a constant of zeros, which need not be there.
    """

    source: Buffer
    target: Buffer
    zeros: bool = False


@frozen(eq=False)
class Block:
    """Layers that run one after the other inside of a layer.

    Attributes:
        graph: what they compute.
        moves: copies behind the last one.
    """

    graph: Graph
    layers: tuple[Layer, ...]
    moves: tuple[Move, ...] = ()


@frozen(eq=False)
class LoopPlan:
    """What a layer is that repeats others.

    Attributes:
        begin: copies before the first run: what the loop carries lies where its results do.
        runs: how many, or, with a condition, at most.
        condition: it runs before each run; None: there is none.
        decision: the bool that the condition computes.
        may_stop: nothing proves that the condition ends the loop before `runs` are over.
    """

    begin: tuple[Move, ...]
    runs: int
    body: Block
    condition: Block | None = None
    decision: Buffer | None = None
    may_stop: bool = False

    @property
    def blocks(self) -> tuple[tuple[Block, int], ...]:
        """The parts, each with how often it runs at most."""
        if self.condition is None:
            return ((self.body, self.runs),)
        return ((self.condition, self.runs + 1), (self.body, self.runs))

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """What it reads and writes beside its layers."""
        decision = (self.decision,) if self.decision is not None else ()
        return (*decision, *_ends(self.moves))

    def most(self, of_layer: Callable[[Layer], int | None]) -> int | None:
        """The sum of all layers of all runs; None if one is not known."""
        sums = [(_total([of_layer(layer) for layer in block.layers]), runs) for block, runs in self.blocks]
        return _total([each * runs if each is not None else None for each, runs in sums])

    @property
    def moves(self) -> tuple[Move, ...]:
        """All copies."""
        return (*self.begin, *self.body.moves)


@frozen(eq=False)
class BranchPlan:
    """What a layer is that runs one of two blocks, whose results lie in the same places.

    Attributes:
        decision: the bool that chooses.
        then: where it is true.
    """

    decision: Buffer
    then: Block
    otherwise: Block

    @property
    def blocks(self) -> tuple[tuple[Block, int], ...]:
        """The parts, each with how often it runs at most."""
        return ((self.then, 1), (self.otherwise, 1))

    @property
    def moves(self) -> tuple[Move, ...]:
        """All copies."""
        return (*self.then.moves, *self.otherwise.moves)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """What it reads and writes beside its layers."""
        return _ends(self.moves)

    def most(self, of_layer: Callable[[Layer], int | None]) -> int | None:
        """The larger sum of a block's layers; None if one is not known."""
        sums = [_total([of_layer(layer) for layer in block.layers]) for block, _ in self.blocks]
        return None if None in sums else max(each for each in sums if each is not None)


@frozen(eq=False)
class Layer:
    """One kernel call of the schedule, or layers around which there is a statement of C.

    Attributes:
        index: position in the schedule; the layer hook of the generated C passes it.
        name: C identifier, unique in the program, made from the model's tensor name.
        work: the nodes that the call computes: `node`, or those of the subgraph that it calls.
        estimated_instructions: those of one call, by the kernel's cost model; None for external code.
        estimated_cycles: likewise; None too where the target has no model of cycles.
        inputs: the buffers that the call reads, in C order.
        outputs: where the results lie right after the call.
        scratch: offset in the arena, or None.
        candidates: the kernels that were considered, see `selection.cheapest.candidates`.
        control: what other layers it runs, and how; None: it is a call.
        measured_cycles: likewise, of a database of measurements; None: it has none.
        fetched: offset in the arena of what constants are copied to before it runs, or None.
        rows: of layers that are computed row by row, the rows of the result that its calls write, in order;
            `call` is each of them. MACs and estimates are those of all of them. None: all in one call.
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
        """What it runs, and how often at most."""
        return self.control.blocks if self.control is not None else ()

    @property
    def all_layers(self) -> Iterator[Layer]:
        """Itself, and all that it runs."""
        yield self
        for block, _ in self.blocks:
            for layer in block.layers:
                yield from layer.all_layers

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of all operators that the call computes, fused ones included."""
        return tuple(
            name
            for node in self.work
            for op in (node.op, *(step.op for step in node.epilogue))
            for name in (op.functions if isinstance(op, Expression) else (op.name,))
        )

    @property
    def label(self) -> str:
        """The model's own name of the result."""
        return self.node.outputs[0].name


@frozen(eq=False)
class StateSlot:
    """A value that lives from call to call.

    Attributes:
        buffer: where it lies in the state region.
        next: where its next content lies at the end of a call; None if it is there already, or never changes.
    """

    buffer: Buffer
    next: Buffer | None


@frozen
class Origin:
    """Where a program comes from: the same wherever the file lies.

    Attributes:
        file: name of the model's file, without folders.
        size: of the file, bytes.
        sha256: of the file, in hexadecimal digits.
        command: the command line that compiled it; empty if a program did.
    """

    file: str
    size: int
    sha256: str
    command: str = ""


def origin_of(path: Path, data: bytes, command: str = "") -> Origin:
    """The origin of what is compiled from a file with this content."""
    return Origin(path.name, len(data), hashlib.sha256(data).hexdigest(), command)


@frozen(eq=False)
class Program:
    """A model compiled for a target.

    Attributes:
        name: C identifier that prefixes everything the model defines.
        source: the graph as it was imported.
        graph: the optimised graph that the layers compute.
        arena: the memory plan; its size includes scratch.
        context: what the passes were told.
        ranges: what is proved about the integers of `graph`.
        pruned: the proofs of what `prune_constant_channels` removed.
        relaxations: what relaxed numerics changed; empty where outputs are the same bits.
        origin: None if the graph is not from a file.
        labels: what the classes of each output are called; empty where nothing says.
        labels_ignored: why labels that came with the model are not among them; empty if there is no such.
        measured_on: where the layers' measured cycles are from; empty: nothing was measured.
        measured_run: cycles of a whole run there; None: it was not measured as it is.
        stream: how some layers are computed row by row; None: all compute whole tensors.
        sliding: the network over a window whose new frames a run takes; None: a run takes the whole input.
        parts: sizes of the objects that the arena consists of, one behind the other; empty: it is one.
        regions: in which memories of the target context and constants lie; None: it names none.
        kernels_proved: no choice of kernels takes fewer estimated cycles within the same flash and arena.
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

    @property
    def calls(self) -> tuple[Layer, ...]:
        """All layers that call a function, also those that others run."""
        found = (each for layer in self.layers for each in layer.all_layers)
        return tuple(layer for layer in found if layer.control is None)

    @property
    def may_stop(self) -> bool:
        """A loop may end at its limit before it is done."""
        found = (each for layer in self.layers for each in layer.all_layers)
        return any(isinstance(layer.control, LoopPlan) and layer.control.may_stop for layer in found)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The optimised graph, and those that its layers run."""
        inner = (each for layer in self.layers for each in layer.all_layers)
        return (self.graph, *(block.graph for layer in inner for block, _ in layer.blocks))

    @property
    def libraries(self) -> Mapping[Library, tuple[str, ...]]:
        """What the firmware must link besides the generated files, with the functions that are called."""
        found: dict[Library, dict[str, None]] = {}
        for function in (layer.call.function for layer in self.calls):
            if function.library is not None:
                found.setdefault(function.library, {}).update(dict.fromkeys(function.calls))
        return {library: tuple(calls) for library, calls in found.items()}

    @property
    def pushed_input(self) -> int | None:
        """Index of the input whose rows are handed in one by one; None: there is none."""
        if self.options.io != "rows":
            return None
        return next(index for index, buffer in enumerate(self.inputs) if buffer.region == "input")

    @property
    def untapped(self) -> Program:
        """The program without taps, which only a firmware can link: what is run and measured here."""
        return replace(self, options=replace(self.options, taps=False)) if self.options.taps else self

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one inference."""
        return sum(layer.macs for layer in self.layers)

    @property
    def estimated_instructions(self) -> int | None:
        """Those of one inference, nothing run; None if a layer is external code."""
        return _total([layer.estimated_instructions for layer in self.layers])

    @property
    def estimated_cycles(self) -> int | None:
        """Likewise; None too if the target has no model of cycles."""
        return _total([layer.estimated_cycles for layer in self.layers])

    @property
    def arena_parts(self) -> tuple[int, ...]:
        """Bytes of the objects that the arena consists of; C has no empty ones."""
        unit = self.options.align
        return tuple(max(align(size, unit), unit) for size in self.parts or (self.arena.size,))

    def arena_part(self, offset: int) -> tuple[int, int]:
        """The object in which an offset of the arena lies, and the offset there."""
        last = len(self.parts) - 1
        for index, size in enumerate(self.parts):
            if offset < size or index == last:
                return index, offset
            offset -= size
        return 0, offset

    @property
    def state_size(self) -> int:
        """Bytes that live from call to call."""
        return max((slot.buffer.offset + slot.buffer.type.nbytes for slot in self.state), default=0)

    @property
    def inner_layers(self) -> tuple[Layer, ...]:
        """The layers that others run; the hook of the generated C passes their indices here."""
        return tuple(each for layer in self.layers for each in layer.all_layers if each is not layer)

    @property
    def moves(self) -> tuple[Move, ...]:
        """Copies around and inside of loops."""
        found = (each for layer in self.layers for each in layer.all_layers)
        return tuple(m for layer in found if layer.control is not None for m in layer.control.moves)

    @property
    def weight_bytes(self) -> int:
        """Bytes of constants in flash: packed weights, channel records, tables, initial states.

        Equal arrays are stored once; what states begin as is stored without repetitions.
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
    """What copies read and write."""
    sources = (move.source for move in moves if not move.zeros)
    return (*sources, *(move.target for move in moves))


def _total(estimates: Sequence[int | None]) -> int | None:
    """Their sum; None if one is not known."""
    known = [estimate for estimate in estimates if estimate is not None]
    return sum(known) if len(known) == len(estimates) else None


def repeated_part(array: Array) -> Array:
    """What an array is copies of, in a row: a single byte, the fewest of its last axes, or all of it."""
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
    """Constants with equal keys are one array in flash."""
    return record, array.dtype.str, array.tobytes()
