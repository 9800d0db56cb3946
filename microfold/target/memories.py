"""Memories of a target: ``[memory.NAME]`` in its TOML."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from typing import Any

from microfold.errors import TargetError
from microfold.support.frozen import frozen

# What a memory may hold: the contexts of models, what is only read, functions.
USES = ("data", "constants", "code")
MOST_BYTES = 1 << 32
# Slower than any serial flash without a cache.
MOST_ACCESS_CYCLES = 10_000
# What compilers and linkers call sections themselves.
_TAKEN = ("text", "data", "bss", "rodata", "init", "fini", "comment", "noinit")


@frozen
class Memory:
    """A memory that the target has for models.

    Attributes:
        size: bytes that models may take of it.
        cycles: of one access: 1 without wait states.
        use: what it may hold: some of `USES`.
        load: the memory that its constants and code are copied from at start-up; empty if it keeps them
            itself.
        region: what the firmware's linker script calls it.
        prefetch: nothing computes from it: constants are copied from there into the arena while the layer
            before runs, by a function of the firmware.
    """

    name: str
    size: int
    cycles: int
    use: tuple[str, ...]
    load: str = ""
    region: str = ""
    prefetch: bool = False

    def section(self, use: str) -> str:
        """The linker section of what has this use: compilers want code, constants and data apart."""
        return f".{self.name}.{use}"


_KEYS: Mapping[str, tuple[type, str]] = {
    "size": (int, "a number of bytes"),
    "cycles": (int, "a number of cycles for each access"),
    "use": (list, f"a list of {', '.join(USES)}"),
    "load": (str, "the name of another memory"),
    "region": (str, "a text"),
    "prefetch": (bool, "true or false"),
}


def read_memories(tables: Mapping[str, Any], where: str) -> tuple[Memory, ...]:
    """The memories of a target, in the order of its file.

    Args:
        tables: what stands under ``memory``.
        where: the file, for messages.

    Raises:
        TargetError: a name, a key or a value is none that a memory may have.
    """
    memories = tuple(_memory(name, table, where) for name, table in tables.items())
    by_name = {memory.name: memory for memory in memories}
    for memory in memories:
        _check_load(memory, by_name, where)
    for first, second in _pairs(memories):
        if first.region == second.region:
            raise TargetError(
                f"{where}: each memory must have a linker region of its own; memory.{first.name} and "
                f"memory.{second.name} are both {first.region}: give one of them another region"
            )
    return memories


def _memory(name: str, table: Any, where: str) -> Memory:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name) or name in _TAKEN:
        raise TargetError(
            f"{where}: a memory's name has up to 31 small letters, digits and '_', begins with a letter, and "
            f"is none of {', '.join(_TAKEN)}; it is {reprlib.repr(name)}"
        )
    if not isinstance(table, dict):
        raise TargetError(f"{where}: memory.{name} must be a table; it is {reprlib.repr(table)}")
    values: dict[str, Any] = table
    for key, value in values.items():
        if key not in _KEYS:
            raise TargetError(f"{where}: unknown key memory.{name}.{key}; known are {', '.join(_KEYS)}")
        kind, what = _KEYS[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TargetError(f"{where}: memory.{name}.{key} must be {what}; it is {reprlib.repr(value)}")
    for key in ("size", "cycles", "use"):
        if key not in values:
            raise TargetError(f"{where}: memory.{name} needs {key}, {_KEYS[key][1]}")
    for key, least, most in (("size", 1, MOST_BYTES), ("cycles", 1, MOST_ACCESS_CYCLES)):
        if not least <= values[key] <= most:
            given = reprlib.repr(values[key])
            raise TargetError(f"{where}: memory.{name}.{key} must be in [{least}, {most}]; it is {given}")
    use: list[Any] = values["use"]
    if not use or any(each not in USES for each in use) or len({*use}) < len(use):
        raise TargetError(
            f"{where}: memory.{name}.use must have some of {', '.join(USES)}, each once; "
            f"it is {reprlib.repr(use)}"
        )
    region = values.get("region", name.upper())
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", region):
        raise TargetError(
            f"{where}: memory.{name}.region is a name in a linker script: letters, digits and '_'; "
            f"it is {reprlib.repr(region)}"
        )
    prefetch = values.get("prefetch", False)
    if prefetch and (use != ["constants"] or "load" in values):
        raise TargetError(
            f"{where}: memory.{name}.prefetch is for constants that stay there: use must be constants alone, "
            f"without load; use is {', '.join(map(str, use))}"
        )
    return Memory(
        name, values["size"], values["cycles"], tuple(map(str, use)), values.get("load", ""), region, prefetch
    )


def _check_load(memory: Memory, by_name: Mapping[str, Memory], where: str) -> None:
    if not memory.load:
        return
    key = f"{where}: memory.{memory.name}.load"
    source = by_name.get(memory.load)
    if source is None or source is memory:
        raise TargetError(
            f"{key} must name another memory; it is {reprlib.repr(memory.load)}; "
            f"memories are {', '.join(by_name)}"
        )
    if memory.use == ("data",):
        raise TargetError(f"{key} is for constants and code; its use is data alone: leave load away")
    if source.load or source.prefetch or "constants" not in source.use:
        raise TargetError(
            f"{key} must name a memory that keeps constants itself: use has constants, and there is no load; "
            f"memory.{source.name} is used for {', '.join(source.use)}"
            + (f" and loaded from {source.load}" if source.load else "")
            + (" and prefetched" if source.prefetch else "")
        )


def _pairs(memories: tuple[Memory, ...]) -> list[tuple[Memory, Memory]]:
    return [(a, b) for index, a in enumerate(memories) for b in memories[index + 1 :]]
