"""The compiled model before it becomes text: what to call, with which constants, at which offsets.

`compiler` builds it; `codegen` prints it; `host`, `simulate` and the reports read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from microfold.analysis.pruning_proof import PruningProof
from microfold.analysis.ranges import NO_RANGES, Ranges
from microfold.analysis.relaxation import Relaxation
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.types import Array, TensorType
from microfold.ir.views import Views
from microfold.kernels.call import KernelCall, Library
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection.cheapest import Candidate
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.plan.arena import ArenaPlan
from microfold.target import Target


@dataclass(frozen=True)
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


@dataclass(frozen=True, eq=False)
class Layer:
    """One kernel call of the schedule.

    Attributes:
        index: position in the schedule; the layer hook of the generated C passes it.
        name: C identifier, unique in the program, made from the model's tensor name.
        work: the nodes that the call computes: `node`, or those of the subgraph that it calls.
        estimated_instructions: those of one call, by the kernel's cost model; None for external code.
        inputs: the buffers that the call reads, in C order.
        outputs: where the results lie right after the call.
        scratch: offset in the arena, or None.
        candidates: the kernels that were considered, see `selection.cheapest.candidates`.
        reads: names and types of all the node's inputs, for comments.
    """

    index: int
    name: str
    node: Node
    kernel: Kernel
    call: KernelCall
    work: tuple[Node, ...]
    macs: int
    estimated_instructions: int | None
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: int | None
    candidates: tuple[Candidate, ...] = ()

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of all operators that the call computes, fused ones included."""
        return tuple(op.name for node in self.work for op in (node.op, *(step.op for step in node.epilogue)))

    def estimated_cycles(self, target: Target) -> int | None:
        """Those of one call by the target's timing; None if it or the instructions are not known."""
        if self.estimated_instructions is None or target.timing is None:
            return None
        return target.timing.estimated_cycles(self.work[0].op.name, self.estimated_instructions)

    @property
    def label(self) -> str:
        """The model's own name of the result."""
        return self.node.outputs[0].name


@dataclass(frozen=True, eq=False)
class StateSlot:
    """A value that lives from call to call.

    Attributes:
        buffer: where it lies in the state region.
        next: where its next content lies at the end of a call; None if it never changes.
    """

    buffer: Buffer
    next: Buffer | None


@dataclass(frozen=True)
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


@dataclass(frozen=True, eq=False)
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
    context: PassContext = field(default_factory=PassContext)
    ranges: Ranges = NO_RANGES
    pruned: tuple[PruningProof, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()
    origin: Origin | None = None
    labels: tuple[tuple[str, ...], ...] = ()
    labels_ignored: str = ""

    @property
    def libraries(self) -> Mapping[Library, tuple[str, ...]]:
        """What the firmware must link besides the generated files, with the functions that are called."""
        found: dict[Library, dict[str, None]] = {}
        for function in (layer.call.function for layer in self.layers):
            if function.library is not None:
                found.setdefault(function.library, {}).update(dict.fromkeys(function.calls))
        return {library: tuple(calls) for library, calls in found.items()}

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
        """Likewise; None too if the target has no timing table."""
        return _total([layer.estimated_cycles(self.target) for layer in self.layers])

    @property
    def state_size(self) -> int:
        """Bytes that live from call to call."""
        return max((slot.buffer.offset + slot.buffer.type.nbytes for slot in self.state), default=0)

    @property
    def weight_bytes(self) -> int:
        """Bytes of constants in flash: packed weights, channel records, tables, initial states.

        Equal arrays are stored once; a state that begins as zeros needs none.
        """
        stored = [(c.array, c.record) for layer in self.layers for c in layer.call.constants.values()]
        views = Views(self.graph)
        stored += [
            (self.graph.constants[views[buffer.value].root], "")
            for layer in self.layers
            for buffer in layer.inputs
            if buffer.region == "constant"
        ]
        stored += [(state.initial, "") for state in self.graph.state if state.initial.any()]
        distinct = {constant_key(array, record): array.nbytes for array, record in stored}
        return sum(distinct.values())


def _total(estimates: Sequence[int | None]) -> int | None:
    """Their sum; None if one is not known."""
    known = [estimate for estimate in estimates if estimate is not None]
    return sum(known) if len(known) == len(estimates) else None


def constant_key(array: Array, record: str = "") -> tuple[str, str, bytes]:
    """Constants with equal keys are one array in flash."""
    return record, array.dtype.str, array.tobytes()
