"""Memories of a target, from the tables ``[memory.NAME]`` in its TOML file."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from typing import Any

from microfold.errors import TargetError
from microfold.support.frozen import frozen

# Possible contents of a memory: contexts and arenas, read-only data, functions.
USES = ("data", "constants", "code")
MOST_BYTES = 1 << 32
# Maximum cycles of an access, slower than any serial flash without a cache.
MOST_ACCESS_CYCLES = 10_000
# Section names that compilers and linkers use themselves.
_TAKEN = ("text", "data", "bss", "rodata", "init", "fini", "comment", "noinit")


@frozen
class Memory:
    """Memory of the target for models.

    Attributes:
        size: size available for models, in bytes.
        cycles: cycles per access; 1 without wait states.
        use: allowed contents, some of `USES`.
        load: memory from which constants and code are copied at start-up; empty if this memory is
            non-volatile.
        region: name of the region in the firmware's linker script.
        prefetch: whether kernels do not read this memory directly. A function of the firmware copies its
            constants into the arena while the previous layer runs.
    """

    name: str
    size: int
    cycles: int
    use: tuple[str, ...]
    load: str = ""
    region: str = ""
    prefetch: bool = False

    def section(self, use: str) -> str:
        """Return the linker section for a use. Compilers require separate sections for code and data."""
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
    """Return the memories of a target, in the order of its file.

    Args:
        tables: the tables under ``memory``.
        where: name of the file, for messages.

    Raises:
        TargetError: a name, a key or a value is invalid.
    """
    memories = tuple(_memory(name, table, where) for name, table in tables.items())
    by_name = {memory.name: memory for memory in memories}
    for memory in memories:
        _check_load(memory, by_name, where)
    for first, second in _pairs(memories):
        if first.region == second.region:
            raise TargetError(
                f"{where}: each memory must have its own linker region; memory.{first.name} and "
                f"memory.{second.name} are both {first.region}: give one of them another region"
            )
    return memories


def _memory(name: str, table: Any, where: str) -> Memory:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name) or name in _TAKEN:
        raise TargetError(
            f"{where}: a memory's name must be up to 31 small letters, digits and '_', begin with a letter, "
            f"and be none of {', '.join(_TAKEN)}; it is {reprlib.repr(name)}"
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
            raise TargetError(f"{where}: memory.{name} must have {key}, {_KEYS[key][1]}")
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
            f"{where}: memory.{name}.region must be a name of letters, digits and '_' for a linker script; "
            f"it is {reprlib.repr(region)}"
        )
    prefetch = values.get("prefetch", False)
    if prefetch and (use != ["constants"] or "load" in values):
        raise TargetError(
            f"{where}: memory.{name} with prefetch must have the use constants alone, and no load; "
            f"use is {', '.join(map(str, use))}"
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
        raise TargetError(f"{key} applies to constants and code; its use is data alone: remove load")
    if source.load or source.prefetch or "constants" not in source.use:
        raise TargetError(
            f"{key} must name a non-volatile memory: use must include constants, without load and prefetch; "
            f"memory.{source.name} is used for {', '.join(source.use)}"
            + (f" and loaded from {source.load}" if source.load else "")
            + (" and prefetched" if source.prefetch else "")
        )


def _pairs(memories: tuple[Memory, ...]) -> list[tuple[Memory, Memory]]:
    return [(a, b) for index, a in enumerate(memories) for b in memories[index + 1 :]]
