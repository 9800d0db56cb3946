"""Named offsets of a program's values in the arena and in the state: enumerators in C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from microfold.codegen.constants import ConstantArrays
from microfold.codegen.fetching import fetched_bytes
from microfold.codegen.layout import label_text
from microfold.codegen.names import Namer, place_of, short_name
from microfold.codegen.parts import ModelPort, NamedOffset
from microfold.ir.node import Value
from microfold.ir.views import StoragePlaces
from microfold.kernels.call import Constant
from microfold.plan.stream.memory import StreamMemory
from microfold.plan.stream.operations import WindowAddress
from microfold.plan.stream.row_node import pitch
from microfold.program import Buffer, Layer, Program

# Root value, and a range of its bytes: offset and size.
_Bytes = tuple[Value, int, int]


class NamedPlaces:
    """Named offsets in the arena and in the state.

    Attributes:
        arenas: offsets for each part of the arena, in the order of the schedule.
        state: offsets in the state.
        scratch, fetched: offsets of each layer's scratch memory and prefetched constants.
    """

    def __init__(
        self,
        program: Program,
        ports: Sequence[ModelPort],
        numbers: Mapping[Layer, str],
        namer: Namer,
        constants: ConstantArrays,
    ):
        """Name every offset.

        Args:
            ports: inputs and outputs.
            numbers: numbers of all layers.
        """
        self.program = program
        self.numbers = numbers
        self.constants = constants
        self.state: list[NamedOffset] = []
        self.arenas = {arena_name(index): list[NamedOffset]() for index in range(len(program.arena_parts))}
        self.scratch: dict[Layer, NamedOffset] = {}
        self.fetched: dict[Layer, NamedOffset] = {}
        self._namer = namer
        self._regions = {**self.arenas, "state": self.state}
        self._views = StoragePlaces(program.graphs)
        self._places: dict[_Bytes, NamedOffset] = {}
        self._windows: dict[Value, NamedOffset] = {}
        self._newest: dict[Value, NamedOffset] = {}
        inputs = [port for port in ports if port.direction == "input"]
        outputs = [port for port in ports if port.direction == "output"]
        self._name_everything(inputs, outputs)

    def at(self, region: str, offset: str) -> str:
        """Return an address in a region, as a C expression."""
        return place_of(self.program.name, region, offset)

    def of(self, buffer: Buffer) -> NamedOffset:
        """Return the offset of a buffer in the arena or in the state."""
        return self._places[self._bytes(buffer)]

    def address(self, buffer: Buffer) -> str:
        """Return the address of a buffer, as a C expression."""
        if buffer.region in self._regions:
            place = self.of(buffer)
            return self.at(place.region, place.name)
        root = self._views[buffer.value].root
        if buffer.region == "constant":
            name = f"{short_name(root.name, 'constant')}_constant"
            return self.constants.add(Constant(name, self._views.constant(root)), label_text(root.name))
        return f"{buffer.region}_{buffer.offset}"

    def scratch_of(self, layer: Layer) -> str:
        """Return the address of a layer's scratch memory, as a C expression."""
        place = self.scratch[layer]
        return self.at(place.region, place.name)

    def fetched_at(self, layer: Layer, offset: int) -> str:
        """Return the address to which a layer's constant is copied, as a C expression."""
        place = self.fetched[layer]
        return self.at(place.region, f"{place.name} + {offset}" if offset else place.name)

    def spot(self, at: WindowAddress) -> str:
        """Return the address of a row in a window, as a C expression."""
        window = (self._newest if at.newest else self._windows)[at.value].name
        return self.at("arena", f"{window} + {at.offset}" if at.offset else window)

    def _bytes(self, buffer: Buffer) -> _Bytes:
        place = self._views[buffer.value]
        return place.root, place.offset, buffer.type.nbytes

    def _name_everything(self, inputs: Sequence[ModelPort], outputs: Sequence[ModelPort]) -> None:
        """Name every offset: inputs first, then each layer's results and scratch memory."""
        for slot in self.program.state:
            self._add_place(slot.buffer, short_name(slot.buffer.value.name, "state"))
        if self.program.stream is not None:
            self._name_windows(self.program.stream, inputs)
        for port in inputs:
            self._add_place(port.buffer, port.name)
        for layer, number in self.numbers.items():
            # Slices and concatenation views have names of their own.
            for buffer in layer.inputs if layer.rows is None else ():
                self._add_place(buffer, short_name(buffer.value.name, "part"))
            for buffer in layer.outputs if layer.rows is None else ():
                self._add_place(buffer, layer.name)
            if layer.scratch is not None and layer.control is None:
                comment = f"{layer.call.scratch} bytes, used only during layer {number}"
                name = self._namer.claim(f"{layer.name}_scratch", "_offset")
                self.scratch[layer] = self._in_arena(name, layer.scratch, comment)
            if layer.fetched is not None and (size := fetched_bytes(self.program, layer)):
                comment = f"{size} bytes of constants, copied during the layer before"
                name = self._namer.claim(f"{layer.name}_fetched", "_offset")
                self.fetched[layer] = self._in_arena(name, layer.fetched, comment)
        # Rows may be computed directly into an output.
        for port in outputs:
            self._add_place(port.buffer, port.name)
        # A loop's decision, or a value passed to its next iteration, may be a view of a layer's result.
        for layer in self.numbers:
            for buffer in layer.control.buffers if layer.control is not None else ():
                self._add_place(buffer, short_name(buffer.value.name, "part"))

    def _name_windows(self, memory: StreamMemory, inputs: Sequence[ModelPort]) -> None:
        """Name the windows of the streamed values."""
        names = {port.buffer.value: port.name for port in inputs}
        names |= {layer.node.output: layer.name for layer in self.program.layers if layer.rows is not None}
        # Results of layers on whole tensors, if streamed layers read their rows.
        producers = {buffer.value: layer for layer in self.program.layers for buffer in layer.outputs}
        names = {value: layer.name for value, layer in producers.items()} | names
        for value, offset in memory.windows.items():
            size = memory.timeline.window_blocks[value].size
            comment = f"{size // pitch(value)} rows of {pitch(value)} bytes"
            name = names[value] if value in names else short_name(value.name, "rows")
            name = self._namer.claim(f"{name}_window", "_offset")
            self._windows[value] = self._in_arena(name, offset, comment)
            if value in memory.newest:
                size = memory.timeline.newest_blocks[value].size
                comment = f"{size // pitch(value)} rows of {pitch(value)} bytes, until they are read"
                name = self._namer.claim(f"{name.removesuffix('_window')}_newest", "_offset")
                self._newest[value] = self._in_arena(name, memory.newest[value], comment)

    def _add_place(self, buffer: Buffer, name: str) -> None:
        key = self._bytes(buffer)
        if buffer.region not in self._regions or key in self._places:
            return
        comment = f"{buffer.type}, {buffer.type.nbytes} bytes"
        name = self._namer.claim(name, "_offset")
        if buffer.region == "arena":
            self._places[key] = self._in_arena(name, buffer.offset, comment)
        else:
            self._places[key] = NamedOffset(name, buffer.offset, comment, buffer.region)
            self._regions[buffer.region].append(self._places[key])

    def _in_arena(self, name: str, offset: int, comment: str) -> NamedOffset:
        """Add a named offset to its part of the arena, and return it."""
        index, within = self.program.arena_part(offset)
        place = NamedOffset(name, within, comment, arena_name(index))
        self._regions[place.region].append(place)
        return place


def arena_name(index: int) -> str:
    """Return the name of a part of the arena: ``arena``, ``arena_2``."""
    return f"arena_{index + 1}" if index else "arena"
