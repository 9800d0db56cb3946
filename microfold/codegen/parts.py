"""Parts of a model as the templates see them: constants, offsets, layers, inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from msgspec import Struct

from microfold.codegen.layout import label_text
from microfold.codegen.literals import C_TYPES, array_lines, literal, string_literal
from microfold.ir.types import Array, TensorType
from microfold.program import Buffer


class ConstantArray(Struct, frozen=True):
    """A constant array of the generated C.

    Attributes:
        type: C type of an element or of a record.
        record: helper that defines the struct type of one row; empty for plain elements.
        comment: comment line in the generated C.
        members: see `Constant`.
        alignment: alignment of the address, in bytes; 1: alignment of the elements.
        section: linker section; empty for the section of all constants.
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
        """Number of elements or records."""
        return self.array.shape[0] if self.record else self.array.size

    @property
    def rows(self) -> list[str]:
        """Lines of the initialiser, between the braces."""
        if self.record:
            rows = self.array.reshape(self.length, -1).tolist()
            return [_braced(self._by_members([*map(literal, row)])) + "," for row in rows]
        return list(array_lines(self.array))

    def _by_members(self, row: list[str]) -> list[str]:
        """Return the initialiser of each member of a record."""
        if not self.members:
            return row
        ends = [*accumulate(self.members)]
        parts = [row[end - count : end] for count, end in zip(self.members, ends, strict=True)]
        return [_braced(part) if len(part) > 1 else part[0] for part in parts]


def _braced(values: Iterable[str]) -> str:
    return "{" + ", ".join(values) + "}"


class NamedOffset(Struct, frozen=True):
    """A named offset in a part of the arena or in the state.

    Attributes:
        region: name of the part of the arena, or ``state``.
    """

    name: str
    offset: int
    comment: str
    region: str = "arena"

    def __str__(self) -> str:
        return f"{self.name} = {self.offset},"


class FieldValue(Struct, frozen=True):
    """Initialiser of a field of a layer struct.

    Attributes:
        text: C expression; empty for a struct.
        fields: initialisers of a struct's fields, in order.
    """

    name: str
    text: str
    fields: tuple[FieldValue, ...] = ()


class CallText(Struct, frozen=True):
    """Template data of one layer.

    Attributes:
        index: position among the model's layers, or among the layers inside other layers.
        local: whether the layer struct is a local variable, because its addresses are known only at run time.
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
        """Calls of functions: this call, or the calls inside a loop or branch."""
        if self.control is None:
            yield self
        else:
            for call in self.control.calls:
                yield from call.all_calls


class MoveText(Struct, frozen=True):
    """Template data of a copy.

    Attributes:
        source: address; empty to fill with zeros.
    """

    target: str
    source: str
    size: int


class LoopText(Struct, frozen=True):
    """Template data of a loop.

    Attributes:
        counter: C variable of the loop.
        decision: address of the condition's result; empty if the loop has no condition.
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
        """Layers of the condition and of the body."""
        return (*self.condition, *self.body)

    @property
    def addresses(self) -> Iterator[str]:
        """Addresses that the copies and the decision read and write."""
        return _addresses(self.decision, (*self.begin, *self.moves), self.calls)


class BlockText(Struct, frozen=True):
    """Template data of one branch: layers, then copies."""

    calls: tuple[CallText, ...]
    moves: tuple[MoveText, ...]


class BranchText(Struct, frozen=True):
    """Template data of a layer that runs one of two branches.

    Attributes:
        decision: address of the condition.
    """

    decision: str
    then: BlockText
    otherwise: BlockText

    @property
    def calls(self) -> tuple[CallText, ...]:
        """Layers of both branches."""
        return (*self.then.calls, *self.otherwise.calls)

    @property
    def addresses(self) -> Iterator[str]:
        """Addresses that the copies and the decision read and write."""
        return _addresses(self.decision, (*self.then.moves, *self.otherwise.moves), self.calls)


def _addresses(decision: str, moves: Sequence[MoveText], calls: Sequence[CallText]) -> Iterator[str]:
    yield decision
    for move in moves:
        yield from (move.target, move.source)
    for call in calls:
        if call.control is not None:
            yield from call.control.addresses


class ModelPort(Struct, frozen=True):
    """Input or output, as the header describes it."""

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
        """Name in the model, as a C string."""
        return string_literal(self.buffer.value.name)

    @property
    def shape(self) -> str:
        return "{" + ", ".join(map(str, self.type.shape or (1,))) + "}"

    @property
    def quantized(self) -> bool:
        """Whether it has one scale and zero point for the whole tensor."""
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


class StateText(Struct, frozen=True):
    """Template data of a state: a value that is kept between runs.

    Attributes:
        copy_address: address of copy `i` of the initial constant.
        initial: name of the constant whose copies are the initial content; empty if it is a single byte.
        part: size of the constant, in bytes.
        byte: first byte of the constant.
        next: address of the content for the next run; empty if it is in place already, or never changes.
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
        """Number of copies of the constant."""
        return self.size // self.part


class TraceText(Struct, frozen=True):
    """Template data of a traced tensor.

    Attributes:
        role: C name of the role, without the prefix.
        size: size in bytes.
    """

    role: str
    layer: int
    index: int
    address: str
    size: int


class TraceTexts(Struct, frozen=True):
    """Tensor trace of a run, and the format of its records: see `tensor_trace`.

    Attributes:
        begin, end: tensors written before and after all layers.
        before, after: tensors written before and after each layer.
        text: C strings that identify the build.
        roles: names and values of the roles.
        build_offset: offset of the build id in a blob, in bytes.
    """

    begin: Sequence[TraceText]
    before: Sequence[Sequence[TraceText]]
    after: Sequence[Sequence[TraceText]]
    end: Sequence[TraceText]
    text: Sequence[str]
    roles: Sequence[tuple[str, int]]
    magic: int
    format: int
    checksum_only: int
    build_offset: int
