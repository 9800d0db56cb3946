"""Layers of a program as C function calls, with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from microfold.codegen.constants import ConstantArrays
from microfold.codegen.fetching import fetched_offsets
from microfold.codegen.functions import RenderedFunction
from microfold.codegen.layout import label_text
from microfold.codegen.literals import literal
from microfold.codegen.names import Namer
from microfold.codegen.parts import BlockText, BranchText, CallText, FieldValue, LoopText, MoveText
from microfold.codegen.places import NamedPlaces
from microfold.codegen.structs import CStruct
from microfold.kernels.call import CFunction, Constant, Parameter
from microfold.program import Block, BranchPlan, Layer, LoopPlan, Move, Program, constant_key


class CallWriter:
    """Generator of the texts that the templates print for layers."""

    def __init__(
        self,
        program: Program,
        functions: Mapping[CFunction, RenderedFunction],
        places: NamedPlaces,
        constants: ConstantArrays,
        namer: Namer,
        own: Callable[[str], str],
    ):
        """Initialise the generator; `own` replaces types of the templates by types of the model."""
        self.program = program
        self.functions = functions
        self.places = places
        self.constants = constants
        self._namer = namer
        self._own = own
        self._data_sections = program.options.data_sections
        self._inner = {layer: index for index, layer in enumerate(program.inner_layers)}

    def call(self, layer: Layer, depth: int = 0) -> CallText:
        """Return the text of a layer; `depth` is the number of loops around it."""
        comment = _comment(layer, self.places.numbers[layer])
        index = self._inner.get(layer, layer.index)
        if layer.control is not None:
            control = self._control(layer.control, depth)
            return CallText(index, "", "", (), False, (), comment, control)
        function = self.functions[layer.call.function]
        values = {name: self._field(layer, value) for name, value in layer.call.parameters.items()}
        local = bool(layer.call.constants) and (self.constants.blob or layer in self.places.fetched)
        if local:
            types = _member_types(function.structs)
            for name in layer.call.constants:
                values[name] = f"({self._own(types[name])}){values[name]}"
        fields = _field_values(function.structs, values)
        description = "description" if local else self._namer.claim(layer.name, "_layer") if fields else ""
        if layer.rows is not None:
            # `StreamWriter` adds the addresses of the rows.
            arguments = (f"&{description}",) if fields else ()
            return CallText(index, description, function.name, fields, local, arguments, comment)
        addresses = [self.places.address(buffer) for buffer in (*layer.inputs, *layer.outputs)]
        if layer.scratch is not None:
            addresses.append(self.places.scratch_of(layer))
        arguments = [f"&{description}"] if fields else []
        arguments += [address_argument(p, a) for p, a in zip(function.parameters, addresses, strict=True)]
        return CallText(index, description, function.name, fields, local, tuple(arguments), comment)

    def _control(self, control: LoopPlan | BranchPlan, depth: int) -> LoopText | BranchText:
        def layers(block: Block | None) -> tuple[CallText, ...]:
            inside = depth + isinstance(control, LoopPlan)
            return tuple(self.call(each, inside) for each in block.layers) if block is not None else ()

        def moves(copies: Sequence[Move]) -> tuple[MoveText, ...]:
            return tuple(self.move(copy) for copy in copies)

        if isinstance(control, BranchPlan):
            then, otherwise = (
                BlockText(layers(b), moves(b.moves)) for b in (control.then, control.otherwise)
            )
            return BranchText(self.places.address(control.decision), then, otherwise)
        loop = control
        return LoopText(
            counter=f"run_{depth + 1}" if depth else "run",
            runs=loop.runs,
            may_stop=loop.may_stop,
            begin=moves(loop.begin),
            condition=layers(loop.condition),
            decision=self.places.address(loop.decision) if loop.decision is not None else "",
            body=layers(loop.body),
            moves=moves(loop.body.moves),
        )

    def move(self, copy: Move) -> MoveText:
        source = "" if copy.zeros else self.places.address(copy.source)
        return MoveText(self.places.address(copy.target), source, copy.target.type.nbytes)

    def _field(self, layer: Layer, value: Parameter) -> str:
        """Return the value of a field as a C expression."""
        if isinstance(value, Constant):
            what = f"Layer {self.places.numbers[layer]}, {layer.name}"
            section = self._data_sections.get(layer.name, "")
            name = self.constants.add(replace(value, label=f"{layer.name}_{value.label}"), what, section)
            copied = fetched_offsets(self.program, layer) if layer in self.places.fetched else {}
            key = constant_key(value.array, value.record)
            return self.places.fetched_at(layer, copied[key][0]) if key in copied else name
        return "0" if value is None else literal(value)

    def copies(self, layer: Layer) -> list[MoveText]:
        """Return the copies of a layer's constants into the arena."""
        if layer not in self.places.fetched:
            return []
        offsets = fetched_offsets(self.program, layer)
        return [
            MoveText(self.places.fetched_at(layer, offset), self.constants.by_key[key].name, size)
            for key, (offset, size) in offsets.items()
        ]


def _field_values(
    structs: Sequence[CStruct], values: Mapping[str, str], prefix: str = ""
) -> tuple[FieldValue, ...]:
    """Return the values of the last struct's members, in order; earlier structs are types of its members."""
    inner = {struct.name: struct for struct in structs[:-1]}
    return tuple(
        FieldValue(m.name, "", _field_values([inner[m.type]], values, f"{prefix}{m.name}."))
        if m.type in inner
        else FieldValue(m.name, values[prefix + m.name])
        for struct in structs[-1:]
        for m in struct.members
    )


def _member_types(structs: Sequence[CStruct]) -> dict[str, str]:
    """Return the types of the last struct's fields by parameter; earlier structs are types of its members."""
    inner = {struct.name: struct for struct in structs[:-1]}
    types: dict[str, str] = {}
    for member in (member for struct in structs[-1:] for member in struct.members):
        types[member.name] = member.type
        if member.type in inner:
            types |= {f"{member.name}.{m.name}": m.type for m in inner[member.type].members}
    return types


def address_argument(parameter: str, address: str) -> str:
    """Return an address as an argument; it needs a cast in C++, which does not convert void pointers."""
    if "(" not in address or parameter.startswith(("void", "const void")):
        return address
    return f"({parameter}){address}"


def _comment(layer: Layer, number: str) -> tuple[str, ...]:
    """Return the comment of a layer: its computation, then the model's name for it."""
    reads = ", ".join(str(v.type) for i, v in enumerate(layer.node.inputs) if v is not None and i < 2)
    results = ", ".join(str(v.type) for v in layer.node.outputs)
    work = f"; {layer.macs} MACs" if layer.macs else ""
    if isinstance(layer.control, LoopPlan):
        work = f", {'at most ' if layer.control.condition else ''}{layer.control.runs} iterations{work}"
    return (
        f"Layer {number}: {' + '.join(layer.operators)}, {reads} -> {results}{work}",
        label_text(layer.label),
    )


def numbered(layers: Sequence[Layer], around: str = "") -> Iterator[tuple[Layer, str]]:
    """Yield all layers with their numbers: layers 3.0, 3.1 and so on are inside layer 3."""
    for index, layer in enumerate(layers):
        number = f"{around}{index}"
        yield layer, number
        inner = [each for block, _ in layer.blocks for each in block.layers]
        yield from numbered(inner, f"{number}.")
