"""What the model templates print, worked out beforehand: names, places, arguments, comments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from microfold.codegen import blob, taps
from microfold.codegen.fetching import fetched_bytes, fetched_offsets
from microfold.codegen.functions import render_functions
from microfold.codegen.layout import label_text
from microfold.codegen.literals import c_type, literal, literal_headers
from microfold.codegen.names import Namer, own_helpers, private_name, short_name
from microfold.codegen.parts import (
    BlockText,
    BranchText,
    CallText,
    ConstantArray,
    FieldValue,
    LoopText,
    MoveText,
    NamedOffset,
    Port,
    StateText,
    TapText,
    TapTexts,
)
from microfold.codegen.shared import Shared
from microfold.codegen.stream import StreamTexts, StreamWriter
from microfold.codegen.structs import Struct
from microfold.ir.node import Value
from microfold.ir.views import ALIGNMENT
from microfold.kernels.call import CFunction, Constant, Parameter
from microfold.plan.overlap import align
from microfold.plan.regions import Regions
from microfold.plan.stream.operations import Spot
from microfold.plan.stream.planner import StreamMemory
from microfold.plan.stream.region import pitch
from microfold.program import (
    Block,
    BranchPlan,
    Buffer,
    Layer,
    LoopPlan,
    Move,
    Places,
    Program,
    constant_key,
    repeated_part,
)

# A root, and which of its bytes: where they begin, and how many.
_Bytes = tuple[Value, int, int]


class Model:
    """A program as the templates see it.

    Attributes:
        shared: what the program has in common with others of the same build; None: nothing.
        functions: every distinct kernel function, shared ones included.
        own_functions: those that only this program calls.
        arena, state: places by name, in the order of the schedule.
        arrays: constants in flash; equal ones are there once.
    """

    def __init__(self, program: Program, shared: Shared | None = None):
        self.program = program
        self.shared = shared
        self.name = program.name
        self.macro = program.name.upper()
        self.options = program.options
        self.target = program.target
        # The core and the flags that select it, if the target has any.
        self.build_target = ", ".join(filter(None, [program.target.name, " ".join(program.target.cpu_flags)]))
        self.blob = program.options.weights == "blob"
        # Whether rows of the input are handed in one by one.
        self.pushes = program.options.io == "rows"
        self.inputs = [Port("input", i, b) for i, b in enumerate(program.inputs)]
        self.outputs = [Port("output", i, b) for i, b in enumerate(program.outputs)]
        self.ports = [*self.inputs, *self.outputs]
        # What the caller hands in with each run, or gets back where it is.
        self.given_outputs = program.options.io == "caller"
        pushed = {port.index for port in self.inputs if self.pushes and port.buffer.region == "input"}
        self.given_inputs = [p for p in self.inputs if self.given_outputs or p.index in pushed]
        self.given = [*self.given_inputs, *(self.outputs if self.given_outputs else ())]
        # What it writes into the arena before.
        self.written_inputs = [port for port in self.inputs if port not in self.given_inputs]
        self.own_functions = render_functions(program, shared.functions if shared is not None else ())
        self.functions = dict(self.own_functions)
        if shared is not None:
            self.functions |= {function: each.rendered for function, each in shared.functions.items()}
        self._data_sections = program.options.data_sections
        self._namer = Namer()
        self._arrays: dict[tuple[str, str, bytes], ConstantArray] = {}
        self._views = Places(program.graphs)
        self._places: dict[_Bytes, NamedOffset] = {}
        self._scratch: dict[Layer, NamedOffset] = {}
        self._fetched: dict[Layer, NamedOffset] = {}
        self._windows: dict[Value, NamedOffset] = {}
        self._newest: dict[Value, NamedOffset] = {}
        self._numbers = dict(_numbered(program.layers))
        self._inner = {layer: index for index, layer in enumerate(program.inner_layers)}
        self.arena: list[NamedOffset] = []
        self.state: list[NamedOffset] = []
        self._regions = {"arena": self.arena, "state": self.state}
        self._place_everything()
        self.calls = [self._call(layer) for layer in program.layers]
        # What is copied before each layer, for the next one; and before the first one, for itself.
        self.copies = [self._copies(layer) for layer in program.layers]
        self.slots = [self._slot(index) for index in range(len(program.state))]
        self.taps = self._taps() if program.options.taps else None
        self.stream = self._stream(program.stream) if program.stream is not None else None
        self.regions = program.regions
        self.sliding = program.sliding
        if self.regions is not None:
            self._place_constants(self.regions)

    def own(self, code: str) -> str:
        """The code with the helpers of the templates as those of this model, or of the whole build."""
        return own_helpers(self.name, code) if self.shared is None else self.shared.own(code, self.name)

    @cached_property
    def arena_bytes(self) -> int:
        """Size of the arena's member; C has no empty arrays."""
        return max(align(self.program.arena.size, self.alignment), self.alignment)

    @property
    def alignment(self) -> int:
        """Bytes at whose multiples the arena starts, and all that lies in it."""
        return self.options.align

    @property
    def aligned(self) -> bool:
        """Whether that is more than C's own types ask for."""
        return self.alignment > ALIGNMENT

    def aligned_size(self, port: Port) -> int:
        """Bytes of an input or output that nothing else shares a line with."""
        return align(port.type.nbytes, self.alignment)

    @cached_property
    def state_bytes(self) -> int:
        """Size of the state's member; 0 if there is none."""
        return align(self.program.state_size)

    @property
    def split(self) -> bool:
        """Whether the arena is apart from the context."""
        return self.options.split

    @property
    def kept_bytes(self) -> int:
        """Size of the context's members besides the arena: they are unions with a uint64_t."""
        stream = self.stream.context_bytes if self.stream is not None else 0
        return self.state_bytes + stream + 8 * (self.blob + self.program.may_stop + self.options.taps)

    @property
    def context_size(self) -> int:
        """sizeof the context struct; C has no empty ones."""
        if self.split:
            return max(self.kept_bytes, 1)
        return align(self.arena_bytes + self.kept_bytes, self.alignment)

    def base(self, region: str) -> str:
        """Where a region begins, in C."""
        return "arena->bytes" if self.split and region == "arena" else f"context->{region}.bytes"

    @cached_property
    def blob_alignment(self) -> int:
        """Of the address of a blob."""
        return max([blob.ALIGNMENT, *(array.alignment for array in self.arrays)])

    @cached_property
    def weights(self) -> list[NamedOffset]:
        """Where the constants lie in a blob."""
        offset, places = blob.HEADER_SIZE, list[NamedOffset]()
        for array in self.arrays:
            offset = align(offset, self.blob_alignment)
            places.append(NamedOffset(array.name, offset, array.comment))
            offset += array.array.nbytes
        return places

    @property
    def blob_size(self) -> int:
        """Bytes of a blob."""
        ends = (p.offset + a.array.nbytes for p, a in zip(self.weights, self.arrays, strict=True))
        return max(ends, default=blob.HEADER_SIZE)

    @property
    def all_calls(self) -> list[CallText]:
        """Of functions, also those in loops."""
        return [inner for call in self.calls for inner in call.all_calls]

    @property
    def unused_parameters(self) -> list[str]:
        """Parameters of the run function that nothing reads."""
        if self.taps:
            # Taps read what calls do not.
            return ["arena"] if self.split else []
        addresses = {argument for call in self.all_calls for argument in call.arguments}
        addresses |= {slot.next for slot in self.slots}
        addresses |= {a for call in self.calls if call.control is not None for a in call.control.addresses}
        addresses |= {slot.address for slot in self.slots if slot.next}
        in_arena = {address for address in addresses if f"{self.macro}_ARENA(" in address}
        context = self.program.may_stop or any(
            "(" in a for a in addresses - (in_arena if self.split else set())
        )
        context = context or (self.blob and any(call.local for call in self.all_calls))
        context = context or (self.fetches and not self.split)
        used = {"context": context, "arena": not self.split or bool(in_arena) or self.fetches}
        ports = [port.name for port in self.given]
        return [*(n for n, is_used in used.items() if not is_used), *(n for n in ports if n not in addresses)]

    @property
    def fetches(self) -> bool:
        """Whether constants are copied into the arena."""
        return any(self.copies)

    @property
    def arrays(self) -> list[ConstantArray]:
        return list(self._arrays.values())

    @property
    def constant_headers(self) -> frozenset[str]:
        """Standard headers for the elements of the constants."""
        # float16 elements are printed as their bits.
        floats = [a.array for a in self.arrays if a.array.dtype == np.float32]
        return literal_headers(extreme for array in floats for extreme in (array.min(), array.max()))

    @property
    def field_headers(self) -> frozenset[str]:
        """Standard headers for the layers' descriptions."""
        parameters = [p for layer in self.program.calls for p in layer.call.parameters.values()]
        return literal_headers(value for value in parameters if isinstance(value, float))

    @property
    def placed(self) -> bool:
        """Whether single constants have sections."""
        return bool(self.options.place) or (self.regions is not None and bool(self.regions.constants))

    def _place_constants(self, regions: Regions) -> None:
        for key, memory in regions.constants.items():
            self._arrays[key] = replace(self._arrays[key], section=memory.section("constants"))

    @cached_property
    def code_sections(self) -> dict[CFunction, str]:
        """Sections of kernels that have one of their own."""
        sections = self.options.code_sections
        layers = [layer for layer in self.program.calls if layer.name in sections]
        return {layer.call.function: sections[layer.name] for layer in layers}

    def place(self, port: Port) -> NamedOffset:
        """Where an input or output lies in the arena."""
        return self._places[self._bytes(port.buffer)]

    def _bytes(self, buffer: Buffer) -> _Bytes:
        place = self._views[buffer.value]
        return place.root, place.offset, buffer.type.nbytes

    def _place_everything(self) -> None:
        """Names every offset: inputs first, then each layer's results and scratch."""
        for slot in self.program.state:
            self._add_place(slot.buffer, short_name(slot.buffer.value.name, "state"))
        if self.program.stream is not None:
            self._place_windows(self.program.stream)
        for port in self.inputs:
            self._add_place(port.buffer, port.name)
        for layer, number in self._numbers.items():
            # Slices and concatenation views have names of their own.
            for buffer in layer.inputs if layer.rows is None else ():
                self._add_place(buffer, short_name(buffer.value.name, "part"))
            for buffer in layer.outputs if layer.rows is None else ():
                self._add_place(buffer, layer.name)
            if layer.scratch is not None and layer.control is None:
                comment = f"{layer.call.scratch} bytes, only during layer {number}"
                name = self._claim(f"{layer.name}_scratch", "_offset")
                self._scratch[layer] = NamedOffset(name, layer.scratch, comment)
                self.arena.append(self._scratch[layer])
            if layer.fetched is not None and (size := fetched_bytes(self.program, layer)):
                comment = f"{size} bytes of constants, from the layer before on"
                name = self._claim(f"{layer.name}_fetched", "_offset")
                self._fetched[layer] = NamedOffset(name, layer.fetched, comment)
                self.arena.append(self._fetched[layer])
        # An output may be what rows are computed into.
        for port in self.outputs:
            self._add_place(port.buffer, port.name)
        # What a loop decides by or hands on may be a view of what its layers compute.
        for layer in self._numbers:
            for buffer in layer.control.buffers if layer.control is not None else ():
                self._add_place(buffer, short_name(buffer.value.name, "part"))

    def _place_windows(self, memory: StreamMemory) -> None:
        """Names the windows of what is computed row by row."""
        names = {port.buffer.value: port.name for port in self.inputs}
        names |= {layer.node.output: layer.name for layer in self.program.layers if layer.rows is not None}
        # Results of whole layers, of which rows are read.
        producers = {buffer.value: layer for layer in self.program.layers for buffer in layer.outputs}
        names = {value: layer.name for value, layer in producers.items()} | names
        for value, offset in memory.windows.items():
            size = memory.planner.window_blocks[value].size
            comment = f"{size // pitch(value)} rows of {pitch(value)} bytes"
            name = names[value] if value in names else short_name(value.name, "rows")
            name = self._claim(f"{name}_window", "_offset")
            self._windows[value] = NamedOffset(name, offset, comment)
            self.arena.append(self._windows[value])
            if value in memory.newest:
                size = memory.planner.newest_blocks[value].size
                comment = f"{size // pitch(value)} of {pitch(value)} bytes, until it is read"
                name = self._claim(f"{name.removesuffix('_window')}_newest", "_offset")
                self._newest[value] = NamedOffset(name, memory.newest[value], comment)
                self.arena.append(self._newest[value])

    def _stream(self, memory: StreamMemory) -> StreamTexts:
        def spot(at: Spot) -> str:
            window = (self._newest if at.newest else self._windows)[at.value].name
            return self._at("arena", f"{window} + {at.offset}" if at.offset else window)

        def call(index: int, read: Mapping[int, str], written: str) -> CallText:
            text, layer = self.calls[index], self.program.layers[index]
            data = layer.kernel.data_inputs(memory.planner.planned[index].layer)
            addresses = [
                read[i] if i in read else self._address(buffer)
                for i, buffer in zip(data, layer.inputs, strict=True)
            ]
            addresses.append(written)
            if layer.scratch is not None:
                addresses.append(self._at("arena", self._scratch[layer].name))
            parameters = self.functions[layer.call.function].parameters
            arguments = map(_argument, parameters, addresses)
            return replace(text, comment=text.comment[:1], arguments=(*text.arguments, *arguments))

        def address_type(index: int) -> str:
            """What the table in the place of the first input holds."""
            function = self.functions[self.program.layers[index].call.function]
            return function.parameters[0].removesuffix("const *").strip()

        return StreamWriter(memory, spot, call, address_type, self.calls, self.name, self.given).texts()

    def _add_place(self, buffer: Buffer, name: str) -> None:
        key = self._bytes(buffer)
        if buffer.region not in self._regions or key in self._places:
            return
        comment = f"{buffer.type}, {buffer.type.nbytes} bytes"
        self._places[key] = NamedOffset(self._claim(name, "_offset"), buffer.offset, comment)
        self._regions[buffer.region].append(self._places[key])

    def _claim(self, name: str, suffix: str = "") -> str:
        return self._namer.claim(private_name(self.name, name), suffix)

    def _array(self, constant: Constant, comment: str, section: str = "") -> str:
        array, record = constant.array, constant.record
        key = constant_key(array, record)
        if key not in self._arrays:
            name = self._claim(constant.label, "_offset" if self.blob else "")
            shape = ", ".join(map(str, array.shape))
            element = self.own(record) or c_type(array)
            comment = f"{comment}: [{shape}]"
            self._arrays[key] = ConstantArray(name, element, array, record, comment, constant.members)
        if section:
            self._arrays[key] = replace(self._arrays[key], section=section)
        if self._arrays[key].alignment < constant.alignment:
            self._arrays[key] = replace(self._arrays[key], alignment=constant.alignment)
        name = self._arrays[key].name
        return self._at("weights", name) if self.blob else name

    def _call(self, layer: Layer, depth: int = 0) -> CallText:
        """A layer; `depth`: how many loops are around it."""
        comment = _comment(layer, self._numbers[layer])
        index = self._inner.get(layer, layer.index)
        if layer.control is not None:
            control = self._control(layer.control, depth)
            return CallText(index, "", "", (), False, (), comment, control)
        function = self.functions[layer.call.function]
        values = {name: self._field(layer, value) for name, value in layer.call.parameters.items()}
        local = bool(layer.call.constants) and (self.blob or layer in self._fetched)
        if local:
            types = _member_types(function.structs)
            for name in layer.call.constants:
                values[name] = f"({self.own(types[name])}){values[name]}"
        fields = _field_values(function.structs, values)
        description = "description" if local else self._claim(layer.name, "_layer") if fields else ""
        if layer.rows is not None:
            # Where rows lie is the stream's.
            arguments = (f"&{description}",) if fields else ()
            return CallText(index, description, function.name, fields, local, arguments, comment)
        addresses = [self._address(buffer) for buffer in (*layer.inputs, *layer.outputs)]
        if layer.scratch is not None:
            addresses.append(self._at("arena", self._scratch[layer].name))
        arguments = [f"&{description}"] if fields else []
        arguments += [_argument(p, a) for p, a in zip(function.parameters, addresses, strict=True)]
        return CallText(index, description, function.name, fields, local, tuple(arguments), comment)

    def _control(self, control: LoopPlan | BranchPlan, depth: int) -> LoopText | BranchText:
        def layers(block: Block | None) -> tuple[CallText, ...]:
            inside = depth + isinstance(control, LoopPlan)
            return tuple(self._call(each, inside) for each in block.layers) if block is not None else ()

        def moves(copies: Sequence[Move]) -> tuple[MoveText, ...]:
            return tuple(self._move(copy) for copy in copies)

        if isinstance(control, BranchPlan):
            then, otherwise = (
                BlockText(layers(b), moves(b.moves)) for b in (control.then, control.otherwise)
            )
            return BranchText(self._address(control.decision), then, otherwise)
        loop = control
        return LoopText(
            counter=f"run_{depth + 1}" if depth else "run",
            runs=loop.runs,
            may_stop=loop.may_stop,
            begin=moves(loop.begin),
            condition=layers(loop.condition),
            decision=self._address(loop.decision) if loop.decision is not None else "",
            body=layers(loop.body),
            moves=moves(loop.body.moves),
        )

    def _move(self, copy: Move) -> MoveText:
        source = "" if copy.zeros else self._address(copy.source)
        return MoveText(self._address(copy.target), source, copy.target.type.nbytes)

    def _field(self, layer: Layer, value: Parameter) -> str:
        """What a field holds, in C."""
        if isinstance(value, Constant):
            what = f"Layer {self._numbers[layer]}, {layer.name}"
            section = self._data_sections.get(layer.name, "")
            name = self._array(replace(value, label=f"{layer.name}_{value.label}"), what, section)
            copied = fetched_offsets(self.program, layer) if layer in self._fetched else {}
            key = constant_key(value.array, value.record)
            return self._fetched_at(layer, copied[key][0]) if key in copied else name
        return "0" if value is None else literal(value)

    def _fetched_at(self, layer: Layer, offset: int) -> str:
        """Where a constant of a layer is copied to."""
        name = self._fetched[layer].name
        return self._at("arena", f"{name} + {offset}" if offset else name)

    def _copies(self, layer: Layer) -> list[MoveText]:
        """Of a layer's constants into the arena."""
        if layer not in self._fetched:
            return []
        offsets = fetched_offsets(self.program, layer)
        return [
            MoveText(self._fetched_at(layer, offset), self._arrays[key].name, size)
            for key, (offset, size) in offsets.items()
        ]

    def _at(self, region: str, offset: str) -> str:
        return f"{self.macro}_{region.upper()}({offset})"

    def _address(self, buffer: Buffer) -> str:
        if buffer.region in self._regions:
            return self._at(buffer.region, self._places[self._bytes(buffer)].name)
        root = self._views[buffer.value].root
        if buffer.region == "constant":
            name = f"{short_name(root.name, 'constant')}_constant"
            return self._array(Constant(name, self._views.constant(root)), label_text(root.name))
        return f"{buffer.region}_{buffer.offset}"

    def _taps(self) -> TapTexts:
        program = self.program

        def text(tap: taps.Tap) -> TapText:
            buffer = tap.buffer
            address = self._address(buffer)
            return TapText(tap.role.name.lower(), tap.layer, tap.index, address, buffer.type.nbytes)

        return TapTexts(
            begin=[*map(text, taps.run_begin(program))],
            before=[[*map(text, taps.layer_begin(layer))] for layer in program.layers],
            after=[[*map(text, taps.layer_done(layer))] for layer in program.layers],
            end=[*map(text, taps.run_end(program))],
            text=taps.BuildText.of(program.origin).literals,
            roles=taps.roles(),
            magic=taps.MAGIC,
            format=taps.FORMAT,
            checksum_only=taps.CHECKSUM_ONLY,
            build_offset=blob.BUILD_OFFSET,
        )

    def _slot(self, index: int) -> StateText:
        slot = self.program.state[index]
        part = repeated_part(self.program.graph.state[index].initial)
        label = slot.buffer.value.name
        name = f"{short_name(label, 'state')}_initial"
        place = self._places[self._bytes(slot.buffer)].name
        return StateText(
            label_text(label),
            self._at("state", place),
            self._at("state", f"{place} + i * {part.nbytes}"),
            slot.buffer.type.nbytes,
            self._array(Constant(name, part), f"Initial state {label_text(label)}")
            if part.nbytes > 1
            else "",
            part.nbytes,
            part.tobytes()[0],
            self._address(slot.next) if slot.next is not None else "",
        )


def _field_values(
    structs: Sequence[Struct], values: Mapping[str, str], prefix: str = ""
) -> tuple[FieldValue, ...]:
    """The values of the last struct's members, in their order; those before are types of members."""
    inner = {struct.name: struct for struct in structs[:-1]}
    return tuple(
        FieldValue(m.name, "", _field_values([inner[m.type]], values, f"{prefix}{m.name}."))
        if m.type in inner
        else FieldValue(m.name, values[prefix + m.name])
        for struct in structs[-1:]
        for m in struct.members
    )


def _member_types(structs: Sequence[Struct]) -> dict[str, str]:
    """Types of the last struct's fields, by the names of parameters; those before are types of members."""
    inner = {struct.name: struct for struct in structs[:-1]}
    types: dict[str, str] = {}
    for member in (member for struct in structs[-1:] for member in struct.members):
        types[member.name] = member.type
        if member.type in inner:
            types |= {f"{member.name}.{m.name}": m.type for m in inner[member.type].members}
    return types


def _argument(parameter: str, address: str) -> str:
    """An address of the context as C++ wants it for a parameter: C converts a pointer to void itself."""
    if "(" not in address or parameter.startswith(("void", "const void")):
        return address
    return f"({parameter}){address}"


def _numbered(layers: Sequence[Layer], around: str = "") -> Iterator[tuple[Layer, str]]:
    """All layers with their numbers: 3 runs 3.0, 3.1 and so on."""
    for index, layer in enumerate(layers):
        number = f"{around}{index}"
        yield layer, number
        inner = [each for block, _ in layer.blocks for each in block.layers]
        yield from _numbered(inner, f"{number}.")


def _comment(layer: Layer, number: str) -> tuple[str, ...]:
    """The lines that introduce a layer: what it computes, then the model's name for it."""
    reads = ", ".join(str(v.type) for i, v in enumerate(layer.node.inputs) if v is not None and i < 2)
    results = ", ".join(str(v.type) for v in layer.node.outputs)
    work = f"; {layer.macs} MACs" if layer.macs else ""
    if isinstance(layer.control, LoopPlan):
        work = f", {layer.control.runs} runs{' at most' if layer.control.condition else ''}{work}"
    return (
        f"Layer {number}: {' + '.join(layer.operators)}, {reads} -> {results}{work}",
        label_text(layer.label),
    )
