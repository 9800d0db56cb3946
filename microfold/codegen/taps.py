"""Taps: what a build with `--taps` writes while it runs, record after record, and what a record looks like.

A record is a head of eight 32-bit words, little-endian: magic; format, role (8 bits each) and index (16
bits); layer; run; ticks; build; length; CRC-32 of the words before. Then the payload, which is the tensor as
the core has it in memory, or, if the highest bit of the role is set, the CRC-32 of it; then the CRC-32 of the
payload.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence

from microfold import __version__
from microfold.codegen.literals import string_literal
from microfold.program import Buffer, Layer, Origin, Program
from microfold.support.frozen import frozen

MAGIC = 0x5054464D  # "MFTP"
FORMAT = 1
HEAD = struct.Struct("<IBBHIIIIII")
CHECKSUM_ONLY = 0x80
_TEXT_WIDTH = 90


class Role(enum.IntEnum):
    """What the tensor of a record is.

    `RUN_BEGIN` and `RUN_END` are none: the payload of the first one is a `BuildText`, the other one has none.
    Layer inputs are read right before the layer runs, layer outputs right behind it, states before the first
    layer and model outputs behind the last.
    """

    RUN_BEGIN = 0
    MODEL_INPUT = 1
    STATE = 2
    LAYER_INPUT = 3
    LAYER_OUTPUT = 4
    MODEL_OUTPUT = 5
    RUN_END = 6


@frozen
class Tap:
    """A tensor that every run writes once.

    Attributes:
        layer: that reads or writes it; 0 for those of the whole run.
        index: of the input, state or output among those of the model or of the layer.
    """

    role: Role
    layer: int
    index: int
    buffer: Buffer

    @property
    def key(self) -> tuple[Role, int, int]:
        """Tells it from all others of the run."""
        return self.role, self.layer, self.index


def run_begin(program: Program) -> list[Tap]:
    """What is written before the first layer."""
    inputs = [Tap(Role.MODEL_INPUT, 0, i, buffer) for i, buffer in enumerate(program.inputs)]
    return inputs + [Tap(Role.STATE, 0, i, slot.buffer) for i, slot in enumerate(program.state)]


def layer_begin(layer: Layer) -> list[Tap]:
    """What a layer reads; the same bytes once, constants not at all."""
    found: dict[tuple[str, int, int], Tap] = {}
    for index, buffer in enumerate(layer.inputs):
        place = (buffer.region, buffer.offset, buffer.type.nbytes)
        if buffer.region != "constant":
            found.setdefault(place, Tap(Role.LAYER_INPUT, layer.index, index, buffer))
    return [*found.values()]


def layer_done(layer: Layer) -> list[Tap]:
    """What a layer wrote."""
    return [Tap(Role.LAYER_OUTPUT, layer.index, i, buffer) for i, buffer in enumerate(layer.outputs)]


def run_end(program: Program) -> list[Tap]:
    """What is written behind the last layer."""
    return [Tap(Role.MODEL_OUTPUT, 0, i, buffer) for i, buffer in enumerate(program.outputs)]


def schedule(program: Program) -> Iterator[Tap]:
    """All of one run, in order."""
    yield from run_begin(program)
    for layer in program.layers:
        yield from layer_begin(layer)
        yield from layer_done(layer)
    yield from run_end(program)


@frozen
class BuildText:
    """What the first record of a run says of the build.

    Attributes:
        version: of microfold.
        sha256, file: of the model; empty if it was none.
        command: the command line; empty if a program compiled it.
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
        """The text of a record, whatever it holds."""
        lines = payload.decode("utf-8", errors="replace").split("\n")
        return BuildText(*(lines + [""] * 4)[:4])

    def __str__(self) -> str:
        # No name of a file can add a line: it is that of the command, which shlex has quoted.
        lines = (self.version, self.sha256, self.file, self.command)
        return "\n".join(" ".join(line.splitlines()) for line in lines)

    @property
    def literals(self) -> list[str]:
        """The text as C strings, a line each."""
        return [*_pieces(str(self))]


def _pieces(text: str) -> Iterator[str]:
    """C strings that together are the text: short ones, each within a line of it."""
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
    """Names of the roles in C, and their values."""
    return [(role.name.lower(), role.value) for role in Role]
