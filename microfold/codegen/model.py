"""Data of the model templates, computed in advance: names, offsets, arguments, comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from microfold.codegen import blob, tensor_trace
from microfold.codegen.calls import CallWriter, address_argument, numbered
from microfold.codegen.constants import ConstantArrays
from microfold.codegen.functions import render_functions
from microfold.codegen.layout import label_text
from microfold.codegen.literals import literal_headers
from microfold.codegen.names import Namer, own_helpers, short_name
from microfold.codegen.parts import (
    CallText,
    ConstantArray,
    ModelPort,
    NamedOffset,
    StateText,
    TraceText,
    TraceTexts,
)
from microfold.codegen.places import NamedPlaces
from microfold.codegen.shared import Shared
from microfold.codegen.stream import StreamTexts, StreamWriter
from microfold.ir.views import ALIGNMENT
from microfold.kernels.call import CFunction, Constant
from microfold.plan.overlap import align
from microfold.plan.stream.memory import StreamMemory
from microfold.program import (
    Program,
    repeated_part,
)


class Model:
    """A program as the templates see it.

    Attributes:
        shared: functions and constants shared with other programs of the build; None: no other programs.
        functions: every distinct kernel function, including shared ones.
        own_functions: functions that only this program calls.
        places: named offsets in the arena and in the state.
        constants: arrays in flash, or parts of a blob.
    """

    def __init__(self, program: Program, shared: Shared | None = None):
        self.program = program
        self.shared = shared
        self.name = program.name
        self.macro = program.name.upper()
        self.options = program.options
        self.target = program.target
        # Name of the core, and the compiler flags that select it, if any.
        self.build_target = ", ".join(filter(None, [program.target.name, " ".join(program.target.cpu_flags)]))
        self.blob = program.options.weights == "blob"
        # Whether the caller passes the input row by row.
        self.pushes = program.options.io == "rows"
        self.inputs = [ModelPort("input", i, b) for i, b in enumerate(program.inputs)]
        self.outputs = [ModelPort("output", i, b) for i, b in enumerate(program.outputs)]
        self.ports = [*self.inputs, *self.outputs]
        # Buffers that the caller passes to each run.
        self.given_outputs = program.options.io == "caller"
        pushed = {port.index for port in self.inputs if self.pushes and port.buffer.region == "input"}
        self.given_inputs = [p for p in self.inputs if self.given_outputs or p.index in pushed]
        self.given = [*self.given_inputs, *(self.outputs if self.given_outputs else ())]
        # Inputs that the caller writes into the arena before a run.
        self.written_inputs = [port for port in self.inputs if port not in self.given_inputs]
        self.own_functions = render_functions(program, shared.functions if shared is not None else ())
        self.functions = dict(self.own_functions)
        if shared is not None:
            self.functions |= {function: each.rendered for function, each in shared.functions.items()}
        namer = Namer(self.name)
        self.constants = ConstantArrays(
            program, namer, self.own, shared.constants.by_key if shared is not None else None
        )
        numbers = dict(numbered(program.layers))
        self.places = NamedPlaces(program, self.ports, numbers, namer, self.constants)
        writer = CallWriter(program, self.functions, self.places, self.constants, namer, self.own)
        self.calls = [writer.call(layer) for layer in program.layers]
        # Copies of each layer's prefetched constants. They start before the layer in front of it; for the
        # first layer, right before itself.
        self.copies = [writer.copies(layer) for layer in program.layers]
        self.slots = [self._slot(index) for index in range(len(program.state))]
        self.taps = self._taps() if program.options.taps else None
        self.stream = self._stream(program.stream) if program.stream is not None else None
        self.regions = program.regions
        self.sliding = program.sliding
        if self.regions is not None:
            self.constants.put_in(self.regions)

    def own(self, code: str) -> str:
        """Return the code with the templates' helpers renamed for this model, or for the whole build."""
        return own_helpers(self.name, code) if self.shared is None else self.shared.own(code, self.name)

    @cached_property
    def arena_bytes(self) -> int:
        """Size of the arena's member, in bytes; at least 1, because C has no empty arrays."""
        return self.arena_sizes[0]

    @property
    def alignment(self) -> int:
        """Alignment of the arena and of everything in it, in bytes."""
        return self.options.align

    @property
    def aligned(self) -> bool:
        """Whether the alignment is larger than the alignment of C types."""
        return self.alignment > ALIGNMENT

    def aligned_size(self, port: ModelPort) -> int:
        """Return the size of an input or output in bytes, rounded up to whole aligned blocks."""
        return align(port.type.nbytes, self.alignment)

    @cached_property
    def state_bytes(self) -> int:
        """Size of the state's member, in bytes; 0 if the program has no state."""
        return align(self.program.state_size)

    @property
    def split(self) -> bool:
        """Whether the arena is separate from the context."""
        return self.options.split

    @property
    def kept_bytes(self) -> int:
        """Size of the context's members except the arena, in bytes: each is a union with a uint64_t."""
        stream = self.stream.context_bytes if self.stream is not None else 0
        return self.state_bytes + stream + 8 * (self.blob + self.program.may_stop + self.options.taps)

    @property
    def context_size(self) -> int:
        """Size of the context struct, in bytes; at least 1, because C has no empty structs."""
        if self.split:
            return max(self.kept_bytes, 1)
        return align(self.arena_bytes + self.kept_bytes, self.alignment)

    def base(self, region: str) -> str:
        """Return the start address of a region, as a C expression."""
        return f"{region}->bytes" if self.split and region in self.arenas else f"context->{region}.bytes"

    @property
    def arena_sizes(self) -> tuple[int, ...]:
        """Sizes of the objects that the arena consists of, in bytes."""
        return self.program.arena_parts

    @property
    def arenas(self) -> Mapping[str, Sequence[NamedOffset]]:
        """Named offsets, in the order of the schedule, for each part of the arena."""
        return self.places.arenas

    @property
    def state(self) -> Sequence[NamedOffset]:
        """Named offsets in the state, in the order of the schedule."""
        return self.places.state

    def holder_of(self, port: ModelPort) -> str:
        """Return the object that contains an input or output: ``context``, or a part of the arena."""
        return self.place(port).region if self.split else "context"

    @property
    def all_calls(self) -> list[CallText]:
        """Calls of functions, including those in loops and branches."""
        return [inner for call in self.calls for inner in call.all_calls]

    @property
    def unused_parameters(self) -> list[str]:
        """Unused parameters of the run function."""
        if self.taps:
            # Taps read all buffers, even if no call does.
            return [*self.arenas] if self.split else []
        addresses = {argument for call in self.all_calls for argument in call.arguments}
        addresses |= {slot.next for slot in self.slots}
        addresses |= {a for call in self.calls if call.control is not None for a in call.control.addresses}
        addresses |= {slot.address for slot in self.slots if slot.next}
        if self.fetches:
            addresses |= {move.target for moves in self.copies for move in moves}
        by_part = {
            part: {address for address in addresses if f"{self.macro}_{part.upper()}(" in address}
            for part in self.arenas
        }
        in_arena = {address for found in by_part.values() for address in found}
        context = self.program.may_stop or any(
            "(" in a for a in addresses - (in_arena if self.split else set())
        )
        context = context or (self.blob and any(call.local for call in self.all_calls))
        context = context or (self.fetches and not self.split)
        used = {"context": context, **{part: not self.split or bool(by_part[part]) for part in self.arenas}}
        ports = [port.name for port in self.given]
        return [*(n for n, is_used in used.items() if not is_used), *(n for n in ports if n not in addresses)]

    @property
    def fetches(self) -> bool:
        """Whether constants are copied into the arena."""
        return any(self.copies)

    @property
    def arrays(self) -> list[ConstantArray]:
        """Constants in flash; equal constants are stored once."""
        return self.constants.arrays

    @property
    def field_headers(self) -> frozenset[str]:
        """Standard headers for the layers' descriptions."""
        parameters = [p for layer in self.program.calls for p in layer.call.parameters.values()]
        return literal_headers(value for value in parameters if isinstance(value, float))

    @property
    def placed(self) -> bool:
        """Whether some constants have sections of their own."""
        return bool(self.options.place) or (self.regions is not None and bool(self.regions.constants))

    @cached_property
    def code_sections(self) -> dict[CFunction, str]:
        """Kernels with sections of their own, and these sections."""
        sections = self.options.code_sections
        layers = [layer for layer in self.program.calls if layer.name in sections]
        return {layer.call.function: sections[layer.name] for layer in layers}

    def place(self, port: ModelPort) -> NamedOffset:
        """Return the named offset of an input or output in the arena."""
        return self.places.of(port.buffer)

    def _stream(self, memory: StreamMemory) -> StreamTexts:
        def call(index: int, read: Mapping[int, str], written: str) -> CallText:
            text, layer = self.calls[index], self.program.layers[index]
            data = layer.kernel.data_inputs(memory.timeline.planned[index].layer)
            addresses = [
                read[i] if i in read else self.places.address(buffer)
                for i, buffer in zip(data, layer.inputs, strict=True)
            ]
            addresses.append(written)
            if layer.scratch is not None:
                addresses.append(self.places.scratch_of(layer))
            parameters = self.functions[layer.call.function].parameters
            arguments = map(address_argument, parameters, addresses)
            return replace(text, comment=text.comment[:1], arguments=(*text.arguments, *arguments))

        def address_type(index: int) -> str:
            """Return the C type of the addresses in the indirection buffer, the call's first argument."""
            function = self.functions[self.program.layers[index].call.function]
            return function.parameters[0].removesuffix("const *").strip()

        return StreamWriter(
            memory, self.places.spot, call, address_type, self.calls, self.name, self.given
        ).texts()

    def _taps(self) -> TraceTexts:
        program = self.program

        def text(tap: tensor_trace.TracedTensor) -> TraceText:
            buffer = tap.buffer
            address = self.places.address(buffer)
            return TraceText(tap.role.name.lower(), tap.layer, tap.index, address, buffer.type.nbytes)

        return TraceTexts(
            begin=[*map(text, tensor_trace.run_begin(program))],
            before=[[*map(text, tensor_trace.layer_begin(layer))] for layer in program.layers],
            after=[[*map(text, tensor_trace.layer_done(layer))] for layer in program.layers],
            end=[*map(text, tensor_trace.run_end(program))],
            text=tensor_trace.BuildText.of(program.origin).literals,
            roles=tensor_trace.roles(),
            magic=tensor_trace.MAGIC,
            format=tensor_trace.FORMAT,
            checksum_only=tensor_trace.CHECKSUM_ONLY,
            build_offset=blob.BUILD_OFFSET,
        )

    def _slot(self, index: int) -> StateText:
        slot = self.program.state[index]
        part = repeated_part(self.program.graph.state[index].initial)
        label = slot.buffer.value.name
        name = f"{short_name(label, 'state')}_initial"
        place = self.places.of(slot.buffer).name
        return StateText(
            label_text(label),
            self.places.at("state", place),
            self.places.at("state", f"{place} + i * {part.nbytes}"),
            slot.buffer.type.nbytes,
            self.constants.add(Constant(name, part), f"Initial state {label_text(label)}")
            if part.nbytes > 1
            else "",
            part.nbytes,
            part.tobytes()[0],
            self.places.address(slot.next) if slot.next is not None else "",
        )
