"""The parts of a model as the templates see them: constants, places, layers, inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from microfold.codegen.layout import label_text
from microfold.codegen.literals import C_TYPES, array_lines, literal, string_literal
from microfold.ir.types import Array, TensorType
from microfold.program import Buffer
from microfold.support.frozen import frozen


@frozen
class ConstantArray:
    """A constant array of the generated C.

    Attributes:
        type: of an element, or of a record, in C.
        record: the helper that is the struct type of one row; empty for plain elements.
        comment: a line for people.
        members: see `Constant`.
        alignment: its address is a multiple of this many bytes; 1: what the elements need.
        section: of the linker; empty for that of all constants.
    """

    name: str
    type: str
    array: Array
    record: str
    comment: str
    members: tuple[int, ...] = ()
    alignment: int = 1
    section: str = ""

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


@frozen
class NamedOffset:
    """A named offset in a part of the arena or in the state.

    Attributes:
        region: which of these.
    """

    name: str
    offset: int
    comment: str
    region: str = "arena"

    def __str__(self) -> str:
        return f"{self.name} = {self.offset},"


@frozen
class FieldValue:
    """What initialises a field of a layer's description.

    Attributes:
        text: empty for a struct.
        fields: those of a struct, in order.
    """

    name: str
    text: str
    fields: tuple[FieldValue, ...] = ()


@frozen
class CallText:
    """What the templates print for one layer.

    Attributes:
        index: among the model's layers, or among those that others run.
        local: the description points into a blob, whose address is known when the layer runs.
    """

    index: int
    description: str
    function: str
    fields: tuple[FieldValue, ...]
    local: bool
    arguments: tuple[str, ...]
    comment: tuple[str, ...]
    control: LoopText | BranchText | None = None

    @property
    def all_calls(self) -> Iterator[CallText]:
        """The calls of functions: itself, or those that it runs."""
        if self.control is None:
            yield self
        else:
            for call in self.control.calls:
                yield from call.all_calls


@frozen
class MoveText:
    """What the templates print for a copy.

    Attributes:
        source: an address; empty for zeros.
    """

    target: str
    source: str
    size: int


@frozen
class LoopText:
    """What the templates print for a layer that repeats others.

    Attributes:
        counter: a variable of its own.
        decision: address of what the condition computes; empty if there is none.
    """

    counter: str
    runs: int
    may_stop: bool
    begin: tuple[MoveText, ...]
    condition: tuple[CallText, ...]
    decision: str
    body: tuple[CallText, ...]
    moves: tuple[MoveText, ...]

    @property
    def calls(self) -> tuple[CallText, ...]:
        """All layers."""
        return (*self.condition, *self.body)

    @property
    def addresses(self) -> Iterator[str]:
        """What copies and the decision read and write."""
        return _addresses(self.decision, (*self.begin, *self.moves), self.calls)


@frozen
class BlockText:
    """What the templates print for a branch: layers, and copies behind them."""

    calls: tuple[CallText, ...]
    moves: tuple[MoveText, ...]


@frozen
class BranchText:
    """What the templates print for a layer that runs one of two branches.

    Attributes:
        decision: address of what chooses.
    """

    decision: str
    then: BlockText
    otherwise: BlockText

    @property
    def calls(self) -> tuple[CallText, ...]:
        """All layers."""
        return (*self.then.calls, *self.otherwise.calls)

    @property
    def addresses(self) -> Iterator[str]:
        """What copies and the decision read and write."""
        return _addresses(self.decision, (*self.then.moves, *self.otherwise.moves), self.calls)


def _addresses(decision: str, moves: Sequence[MoveText], calls: Sequence[CallText]) -> Iterator[str]:
    yield decision
    for move in moves:
        yield from (move.target, move.source)
    for call in calls:
        if call.control is not None:
            yield from call.control.addresses


@frozen
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


@frozen
class StateText:
    """What the templates print for a value that lives from run to run.

    Attributes:
        copy_address: where copy i of the constant lies.
        initial: name of the constant that it begins as copies of; empty if that is a single byte.
        part: bytes of the constant.
        byte: that single byte.
        next: address of its content in the next run; empty if it is there already, or never changes.
    """

    label: str
    address: str
    copy_address: str
    size: int
    initial: str
    part: int
    byte: int
    next: str

    @property
    def copies(self) -> int:
        """How often the constant is in it."""
        return self.size // self.part


@frozen
class TapText:
    """What the templates print for a tensor that a tap writes.

    Attributes:
        role: its name in C, without the prefix.
        size: bytes.
    """

    role: str
    layer: int
    index: int
    address: str
    size: int


@frozen
class TapTexts:
    """All taps of a run, and the format of their records: see `taps`.

    Attributes:
        begin, end: around all layers.
        before, after: around each layer.
        text: C strings that say which build it is.
        roles: names and values.
        build_offset: where a blob names its build.
    """

    begin: Sequence[TapText]
    before: Sequence[Sequence[TapText]]
    after: Sequence[Sequence[TapText]]
    end: Sequence[TapText]
    text: Sequence[str]
    roles: Sequence[tuple[str, int]]
    magic: int
    format: int
    checksum_only: int
    build_offset: int
