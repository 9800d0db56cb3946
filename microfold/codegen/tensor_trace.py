"""Tensor trace: the records that a build with `--taps` writes while it runs, and their format.

A record consists of a head, the payload, and the CRC-32 of the payload. The head has eight 32-bit words,
little-endian: magic; format, role (8 bits each) and index (16 bits); layer; run; ticks; build; length; CRC-32
of the words before. The payload is the tensor as it is in the core's memory, or the CRC-32 of the tensor if
the highest bit of the role is set.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence

from msgspec import Struct

from microfold import __version__
from microfold.codegen.literals import string_literal
from microfold.program import Buffer, Layer, Origin, Program

MAGIC = 0x5054464D  # "MFTP"
FORMAT = 1
HEAD = struct.Struct("<IBBHIIIIII")
CHECKSUM_ONLY = 0x80
_TEXT_WIDTH = 90


class Role(enum.IntEnum):
    """Role of a record's tensor.

    `RUN_BEGIN` and `RUN_END` have no tensor: the payload of `RUN_BEGIN` is a `BuildText`, `RUN_END` has no
    payload. Layer inputs are read right before the layer runs, and layer outputs right after it. States are
    read before the first layer, and model outputs after the last layer.
    """

    RUN_BEGIN = 0
    MODEL_INPUT = 1
    STATE = 2
    LAYER_INPUT = 3
    LAYER_OUTPUT = 4
    MODEL_OUTPUT = 5
    RUN_END = 6


class TracedTensor(Struct, frozen=True):
    """A traced tensor, which every run writes once.

    Attributes:
        layer: index of the layer that reads or writes it; 0 for tensors of the whole run.
        index: number of the input, state or output of the model or of the layer.
    """

    role: Role
    layer: int
    index: int
    buffer: Buffer

    @property
    def key(self) -> tuple[Role, int, int]:
        """Unique key within a run."""
        return self.role, self.layer, self.index


def run_begin(program: Program) -> list[TracedTensor]:
    """Return the tensors that are written before the first layer."""
    inputs = [TracedTensor(Role.MODEL_INPUT, 0, i, buffer) for i, buffer in enumerate(program.inputs)]
    return inputs + [TracedTensor(Role.STATE, 0, i, slot.buffer) for i, slot in enumerate(program.state)]


def layer_begin(layer: Layer) -> list[TracedTensor]:
    """Return the tensors that a layer reads, without constants and duplicates."""
    found: dict[tuple[str, int, int], TracedTensor] = {}
    for index, buffer in enumerate(layer.inputs):
        place = (buffer.region, buffer.offset, buffer.type.nbytes)
        if buffer.region != "constant":
            found.setdefault(place, TracedTensor(Role.LAYER_INPUT, layer.index, index, buffer))
    return [*found.values()]


def layer_done(layer: Layer) -> list[TracedTensor]:
    """Return the tensors that a layer has written."""
    return [TracedTensor(Role.LAYER_OUTPUT, layer.index, i, buffer) for i, buffer in enumerate(layer.outputs)]


def run_end(program: Program) -> list[TracedTensor]:
    """Return the tensors that are written after the last layer."""
    return [TracedTensor(Role.MODEL_OUTPUT, 0, i, buffer) for i, buffer in enumerate(program.outputs)]


def schedule(program: Program) -> Iterator[TracedTensor]:
    """Yield all traced tensors of a run, in order."""
    yield from run_begin(program)
    for layer in program.layers:
        yield from layer_begin(layer)
        yield from layer_done(layer)
    yield from run_end(program)


class BuildText(Struct, frozen=True):
    """Description of the build in the first record of a run.

    Attributes:
        version: version of microfold.
        sha256, file: hash and name of the model file; empty without a file.
        command: command line of the build; empty if it was compiled through the Python API.
    """

    version: str
    sha256: str = ""
    file: str = ""
    command: str = ""

    @staticmethod
    def of(origin: Origin | None) -> BuildText:
        if origin is None:
            return BuildText(__version__)
        return BuildText(__version__, origin.sha256, origin.file, origin.command)

    @staticmethod
    def parse(payload: bytes) -> BuildText:
        """Return the description in a payload, even if it is malformed."""
        lines = payload.decode("utf-8", errors="replace").split("\n")
        return BuildText(*(lines + [""] * 4)[:4])

    def __str__(self) -> str:
        # Line breaks in a file name must not add lines. The command is quoted by shlex.
        lines = (self.version, self.sha256, self.file, self.command)
        return "\n".join(" ".join(line.splitlines()) for line in lines)

    @property
    def literals(self) -> list[str]:
        """Text as C strings, each on a line."""
        return [*_pieces(str(self))]


def _pieces(text: str) -> Iterator[str]:
    """Yield C strings that together are the text: short ones, which end at line breaks."""
    piece = ""
    for character in text:
        if len(string_literal(piece + character)) > _TEXT_WIDTH:
            yield string_literal(piece)
            piece = ""
        piece += character
        if character == "\n":
            yield string_literal(piece)
            piece = ""
    yield string_literal(piece)


def roles() -> Sequence[tuple[str, int]]:
    """Return the C names of the roles, and their values."""
    return [(role.name.lower(), role.value) for role in Role]
