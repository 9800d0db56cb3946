"""What the model templates print, worked out beforehand: names, places, arguments, comments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from microfold.codegen.functions import render_functions
from microfold.codegen.layout import label_text
from microfold.codegen.literals import (
    C_TYPES,
    array_lines,
    c_type,
    literal,
    literal_headers,
    string_literal,
)
from microfold.codegen.names import Namer, short_name
from microfold.ir.node import Value
from microfold.ir.types import Array, TensorType
from microfold.ir.views import Views
from microfold.kernels.call import Constant
from microfold.plan.overlap import align
from microfold.program import Buffer, Layer, Program, constant_key

# The linker sees these of every model, besides its constants. The last ones are those of host runs.
API = ("context", "init", "reset", "run", "context_size_check", "context_size", "set_observer", "layer_done",
       "external_failed", "external_failure")  # fmt: skip


# A root, and which of its bytes: where they begin, and how many.
_Bytes = tuple[Value, int, int]


@dataclass(frozen=True)
class ConstantArray:
    """A constant array of the generated C.

    Attributes:
        record: C struct type of one row; empty for plain elements.
        comment: a line for people.
        members: see `Constant`.
        alignment: its address is a multiple of this many bytes; 1: what the elements need.
    """

    name: str
    array: Array
    record: str
    comment: str
    members: tuple[int, ...] = ()
    alignment: int = 1

    @property
    def type(self) -> str:
        return self.record or c_type(self.array)

    @property
    def length(self) -> int:
        """Elements, or records."""
        return self.array.shape[0] if self.record else self.array.size

    @property
    def rows(self) -> list[str]:
        """The lines between the braces."""
        if self.record:
            rows = self.array.reshape(self.length, -1).tolist()
            return [_braced(self._by_members([*map(literal, row)])) + "," for row in rows]
        return list(array_lines(self.array))

    def _by_members(self, row: list[str]) -> list[str]:
        """What initialises each member of a record."""
        if not self.members:
            return row
        ends = [*accumulate(self.members)]
        parts = [row[end - count : end] for count, end in zip(self.members, ends, strict=True)]
        return [_braced(part) if len(part) > 1 else part[0] for part in parts]


def _braced(values: Iterable[str]) -> str:
    return "{" + ", ".join(values) + "}"


@dataclass(frozen=True)
class NamedOffset:
    """A named offset in the arena or in the state."""

    name: str
    offset: int
    comment: str

    def __str__(self) -> str:
        return f"{self.name} = {self.offset},"


@dataclass(frozen=True)
class FieldValue:
    """An initialised field of a layer's description."""

    name: str
    text: str


@dataclass(frozen=True)
class CallText:
    """What the templates print for one layer."""

    index: int
    description: str
    function: str
    fields: tuple[FieldValue, ...]
    arguments: tuple[str, ...]
    comment: tuple[str, ...]


@dataclass(frozen=True)
class Port:
    """An input or output as the header describes it."""

    direction: str
    index: int
    buffer: Buffer

    @property
    def type(self) -> TensorType:
        return self.buffer.type

    @property
    def c_type(self) -> str:
        return C_TYPES[self.type.dtype]

    @property
    def name(self) -> str:
        return f"{self.direction}_{self.index}"

    @property
    def label(self) -> str:
        return label_text(self.buffer.value.name)

    @property
    def name_literal(self) -> str:
        """The model's name for it, as a C string."""
        return string_literal(self.buffer.value.name)

    @property
    def shape(self) -> str:
        return "{" + ", ".join(map(str, self.type.shape or (1,))) + "}"

    @property
    def quantized(self) -> bool:
        """It has one scale and zero point."""
        return self.type.quant is not None and self.type.quant.axis is None

    @property
    def scale(self) -> str:
        assert self.type.quant is not None
        return literal(self.type.quant.scale)

    @property
    def zero_point(self) -> str:
        assert self.type.quant is not None
        value = literal(self.type.quant.zero_point)
        return f"({value})" if value.startswith("-") else value

    @property
    def range(self) -> tuple[int, int]:
        return self.type.dtype.range


@dataclass(frozen=True)
class StateText:
    """What the templates print for a value that lives from run to run.

    Attributes:
        initial: name of the constant it begins as; empty for zeros.
        next: address of its content in the next run; empty if it never changes.
    """

    label: str
    address: str
    size: int
    initial: str
    next: str


class Model:
    """A program as the templates see it.

    Attributes:
        functions: every distinct kernel function.
        arena, state: places by name, in the order of the schedule.
        arrays: constants in flash; equal ones are there once.
    """

    def __init__(self, program: Program):
        self.program = program
        self.name = program.name
        self.macro = program.name.upper()
        self.options = program.options
        self.target = program.target
        # The core and the flags that select it, if the target has any.
        self.build_target = ", ".join(filter(None, [program.target.name, " ".join(program.target.cpu_flags)]))
        self.caller_io = program.options.io == "caller"
        self.inputs = [Port("input", i, b) for i, b in enumerate(program.inputs)]
        self.outputs = [Port("output", i, b) for i, b in enumerate(program.outputs)]
        self.ports = [*self.inputs, *self.outputs]
        self.functions = render_functions(program)
        api = [*API, *(port.name for port in self.ports)]
        taken = [f"{self.name}_{name}" for name in api]
        self._namer = Namer(taken)
        # Names of functions, and of what belongs to them, go on with an instruction set.
        alike = any(function.name.startswith(f"{self.name}__") for function in self.functions.values())
        self._constants = f"{self.name}__constant_" if alike else f"{self.name}__"
        self._arrays: dict[tuple[str, str, bytes], ConstantArray] = {}
        self._views = Views(program.graph)
        self._places: dict[_Bytes, NamedOffset] = {}
        self._scratch: dict[int, NamedOffset] = {}
        self.arena: list[NamedOffset] = []
        self.state: list[NamedOffset] = []
        self._regions = {"arena": self.arena, "state": self.state}
        self._place_everything()
        self.calls = [self._call(layer) for layer in program.layers]
        self.slots = [self._slot(index) for index in range(len(program.state))]

    @cached_property
    def arena_bytes(self) -> int:
        """Size of the arena's member; C has no empty arrays."""
        return max(align(self.program.arena.size), 8)

    @cached_property
    def state_bytes(self) -> int:
        """Size of the state's member; 0 if there is none."""
        return align(self.program.state_size)

    @property
    def context_size(self) -> int:
        """sizeof the context struct: its members are unions with a uint64_t."""
        return self.arena_bytes + self.state_bytes

    @property
    def unused_parameters(self) -> list[str]:
        """Parameters of the run function that nothing reads."""
        addresses = {argument for call in self.calls for argument in call.arguments}
        addresses |= {slot.next for slot in self.slots}
        context = any("(" in address for address in addresses)
        ports = [port.name for port in self.ports] if self.caller_io else []
        return [*(() if context else ("context",)), *(name for name in ports if name not in addresses)]

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
        parameters = [p for layer in self.program.layers for p in layer.call.parameters.values()]
        return literal_headers(value for value in parameters if isinstance(value, float))

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
        for port in self.inputs:
            self._add_place(port.buffer, port.name)
        for layer in self.program.layers:
            # Slices and concatenation views have names of their own.
            for buffer in layer.inputs:
                self._add_place(buffer, short_name(buffer.value.name, "part"))
            for buffer in layer.outputs:
                self._add_place(buffer, layer.name)
            if layer.scratch is not None:
                comment = f"{layer.call.scratch} bytes, only during layer {layer.index}"
                name = self._namer.claim(f"{layer.name}_scratch", "_offset")
                self._scratch[layer.index] = NamedOffset(name, layer.scratch, comment)
                self.arena.append(self._scratch[layer.index])

    def _add_place(self, buffer: Buffer, name: str) -> None:
        key = self._bytes(buffer)
        if buffer.region not in self._regions or key in self._places:
            return
        comment = f"{buffer.type}, {buffer.type.nbytes} bytes"
        self._places[key] = NamedOffset(self._namer.claim(name, "_offset"), buffer.offset, comment)
        self._regions[buffer.region].append(self._places[key])

    def _array(self, constant: Constant, comment: str) -> str:
        array, record = constant.array, constant.record
        key = constant_key(array, record)
        if key not in self._arrays:
            name = self._namer.claim(f"{self._constants}{constant.label}")
            shape = ", ".join(map(str, array.shape))
            self._arrays[key] = ConstantArray(name, array, record, f"{comment}: [{shape}]", constant.members)
        if self._arrays[key].alignment < constant.alignment:
            self._arrays[key] = replace(self._arrays[key], alignment=constant.alignment)
        return self._arrays[key].name

    def _call(self, layer: Layer) -> CallText:
        function = self.functions[layer.call.function]
        fields: list[FieldValue] = []
        for name, value in layer.call.parameters.items():
            if value is None:
                continue
            if isinstance(value, Constant):
                what = f"Layer {layer.index}, {layer.name}"
                text = self._array(replace(value, label=f"{layer.name}_{value.label}"), what)
            else:
                text = literal(value)
            fields.append(FieldValue(name, text))
        description = self._namer.claim(layer.name, "_layer") if fields else ""
        arguments = [f"&{description}"] if fields else []
        arguments += [self._address(buffer) for buffer in (*layer.inputs, *layer.outputs)]
        if layer.scratch is not None:
            arguments.append(self._at("arena", self._scratch[layer.index].name))
        return CallText(
            layer.index,
            description,
            function.name,
            tuple(fields),
            tuple(arguments),
            _comment(layer),
        )

    def _at(self, region: str, offset: str) -> str:
        return f"{self.macro}_{region.upper()}({offset})"

    def _address(self, buffer: Buffer) -> str:
        if buffer.region in self._regions:
            return self._at(buffer.region, self._places[self._bytes(buffer)].name)
        root = self._views[buffer.value].root
        if buffer.region == "constant":
            name = f"{short_name(root.name, 'constant')}_constant"
            return self._array(Constant(name, self.program.graph.constants[root]), label_text(root.name))
        return f"{buffer.region}_{buffer.offset}"

    def _slot(self, index: int) -> StateText:
        slot = self.program.state[index]
        initial = self.program.graph.state[index].initial
        label = slot.buffer.value.name
        name = f"{short_name(label, 'state')}_initial"
        return StateText(
            label_text(label),
            self._address(slot.buffer),
            slot.buffer.type.nbytes,
            self._array(Constant(name, initial), f"Initial state {label_text(label)}")
            if initial.any()
            else "",
            self._address(slot.next) if slot.next is not None else "",
        )


def _comment(layer: Layer) -> tuple[str, ...]:
    """The lines that introduce a layer: what it computes, then the model's name for it."""
    reads = ", ".join(str(v.type) for i, v in enumerate(layer.node.inputs) if v is not None and i < 2)
    results = ", ".join(str(v.type) for v in layer.node.outputs)
    work = f"; {layer.macs} MACs" if layer.macs else ""
    return (
        f"Layer {layer.index}: {' + '.join(layer.operators)}, {reads} -> {results}{work}",
        label_text(layer.label),
    )
