"""The user's board: its description."""

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
    """A board, as its user describes it in a TOML file.

    Attributes:
        name: what the database calls it.
        clock: of the core, Hz.
        flash, ram: address and bytes of what an image may use.
        stack: bytes of it.
        caches: ``warm``: a run before those that count; ``cold``: emptied before each layer.
        counter: ``dwt`` or ``systick``; ``auto``: the DWT's where there is one that counts, or else SysTick.
        runs: how often the model runs.
        output: ``semihosting``, or the function of the board's own files.
        sources: C files of the board's own, see docs/tuning.md.
        flags: of the compiler, for these.
        folder: relative to which they are named.
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
    """A board's description.

    Raises:
        InputError: the file cannot be read, or says something that no board has.
    """
    try:
        table = read_toml(path)
    except ValueError as error:
        raise InputError(f"{path} is not a readable TOML file: {error}") from None
    unknown = sorted(table.keys() - Board.__dataclass_fields__.keys() | table.keys() & {"folder"})
    if unknown:
        raise InputError(f"{path}: a board has no {', '.join(unknown)}; see docs/tuning.md for what it has")
    board = decode(Board, table, str(path))
    if not re.fullmatch(r"[A-Za-z0-9._+-]{1,64}", board.name):
        raise InputError(f"{path}: a name has letters, digits, '.', '_', '+' and '-'; it is {board.name!r}")
    for name, region in (("flash", board.flash), ("ram", board.ram)):
        if len(region) != 2 or sum(region) > 1 << 32 or region[1] == 0:
            raise InputError(
                f"{path}: {name} must be an address and a size within 4 GiB; it is {list(region)}"
            )
    for name, least, most in (("clock", 1, 10**10), ("runs", 1, 1000), ("stack", 512, 1 << 24)):
        if not least <= getattr(board, name) <= most:
            raise InputError(f"{path}: {name} must be in [{least}, {most}]; it is {getattr(board, name)}")
    if board.output == "sources" and not board.sources:
        raise InputError(f'{path}: output = "sources" needs sources that define microfold_board_write')
    for source in board.sources:
        if not Path(path.parent, source).is_file():
            raise InputError(f"{path}: a board's sources must exist; {source!r} does not")
    return replace(board, folder=str(path.absolute().parent))
