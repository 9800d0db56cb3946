"""Description of the user's board."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

from microfold.errors import InputError
from microfold.report.decode import decode
from microfold.support.frozen import frozen
from microfold.support.toml import read_toml


@frozen
class Board:
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

    name: str
    clock: int
    flash: tuple[int, ...]
    ram: tuple[int, ...]
    stack: int = 16384
    caches: Literal["warm", "cold"] = "warm"
    counter: Literal["auto", "dwt", "systick"] = "auto"
    runs: int = 5
    output: Literal["semihosting", "sources"] = "semihosting"
    sources: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    folder: str = ""


def load_board(path: Path) -> Board:
    """Load the description of a board.

    Raises:
        InputError: the file cannot be read, or has an unknown key or invalid value.
    """
    try:
        table = read_toml(path)
    except ValueError as error:
        raise InputError(f"{path} is not a readable TOML file: {error}") from None
    unknown = sorted(table.keys() - Board.__dataclass_fields__.keys() | table.keys() & {"folder"})
    if unknown:
        raise InputError(
            f"{path}: unknown key {', '.join(unknown)}; docs/tuning.md lists the keys of a board"
        )
    board = decode(Board, table, str(path))
    if not re.fullmatch(r"[A-Za-z0-9._+-]{1,64}", board.name):
        raise InputError(
            f"{path}: name must have letters, digits, '.', '_', '+' and '-' only; it is {board.name!r}"
        )
    for name, region in (("flash", board.flash), ("ram", board.ram)):
        if len(region) != 2 or sum(region) > 1 << 32 or region[1] == 0:
            raise InputError(
                f"{path}: {name} must be an address and a size within 4 GiB; it is {list(region)}"
            )
    for name, least, most in (("clock", 1, 10**10), ("runs", 1, 1000), ("stack", 512, 1 << 24)):
        if not least <= getattr(board, name) <= most:
            raise InputError(f"{path}: {name} must be in [{least}, {most}]; it is {getattr(board, name)}")
    if board.output == "sources" and not board.sources:
        raise InputError(f'{path}: output = "sources" requires sources that define microfold_board_write')
    for source in board.sources:
        if not Path(path.parent, source).is_file():
            raise InputError(f"{path}: a board's sources must exist; {source!r} does not")
    return replace(board, folder=str(path.absolute().parent))
