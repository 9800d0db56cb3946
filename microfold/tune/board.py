"""Description of the user's board."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from microfold.errors import InputError
from microfold.support.decode import decode, refuse, rule
from microfold.support.toml import read_toml

Name = Annotated[
    str,
    rule("1 to 64 letters, digits, '.', '_', '+' and '-'", pattern=r"\A[A-Za-z0-9._+-]{1,64}\Z"),
]
Bytes = Annotated[int, Meta(ge=0, le=1 << 32)]
Region = Annotated[tuple[Bytes, ...], rule("an address and a size", min_length=2, max_length=2)]


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of the file."""

    name: Name
    clock: Annotated[int, Meta(ge=1, le=10**10)]
    flash: Region
    ram: Region
    stack: Annotated[int, Meta(ge=512, le=1 << 24)] = 16384
    caches: Literal["warm", "cold"] = "warm"
    counter: Literal["auto", "dwt", "systick"] = "auto"
    runs: Annotated[int, Meta(ge=1, le=1000)] = 5
    output: Literal["semihosting", "sources"] = "semihosting"
    sources: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


class Board(_File, frozen=True):
    """Board, described by the user in a TOML file.

    Attributes:
        clock: clock of the core, in Hz.
        flash, ram: address, and size in bytes, of the memory that an image can use.
        stack: size of the stack, in bytes.
        caches: ``warm``: a first run is not measured. ``cold``: caches are cleared before each layer.
        counter: cycle counter, ``dwt`` or ``systick``; ``auto``: DWT if it exists and counts, else SysTick.
        runs: number of measured runs.
        output: ``semihosting``; or ``sources``, a function in the board's own files.
        sources: C files for the board, see docs/tuning.md.
        flags: compiler flags for these files.
        folder: folder to which their paths are relative.
    """

    folder: str = ""


def load_board(path: Path) -> Board:
    """Load the description of a board.

    Raises:
        InputError: the file cannot be read, or has an unknown keys or invalid values.
    """
    try:
        table = read_toml(path)
    except ValueError as error:
        raise InputError(f"{path} is not a readable TOML file: {error}") from None
    file = decode(_File, table, str(path), root="")
    refuse(str(path), [*_contradictions(file, path.parent)])
    return Board(**asdict(file), folder=str(path.absolute().parent))


def _contradictions(board: _File, folder: Path) -> Iterator[str]:
    """Yield the faults that concern several values or files."""
    for name, region in (("flash", board.flash), ("ram", board.ram)):
        if sum(region) > 1 << 32 or region[1] == 0:
            yield f"{name} must be an address and a size within 4 GiB; it is {list(region)}"
    if board.output == "sources" and not board.sources:
        yield 'output = "sources" requires sources that define microfold_board_write'
    for source in board.sources:
        if not Path(folder, source).is_file():
            yield f"a board's sources must exist; {source!r} does not"
