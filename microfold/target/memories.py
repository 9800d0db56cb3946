"""Memories of a target, from the tables ``[memory.NAME]`` in its TOML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Annotated, Literal

from msgspec import Struct

from microfold.support.decode import rule, shown

# Possible contents of a memory: contexts and arenas, read-only data, functions.
USES = ("data", "constants", "code")
MOST_BYTES = 1 << 32
# Maximum cycles of an access, slower than any serial flash without a cache.
MOST_ACCESS_CYCLES = 10_000
# Section names that compilers and linkers use themselves.
_TAKEN = ("text", "data", "bss", "rodata", "init", "fini", "comment", "noinit")
# Rules of values in messages.
_ACCESS = f"a number of cycles for each access, 1 to {MOST_ACCESS_CYCLES}"
_SOME = f"some of {', '.join(USES)}, each once"
_NAME = "up to 31 small letters, digits and '_', begin with a letter, and be none of " + ", ".join(_TAKEN)
MemoryName = Annotated[str, rule(_NAME, pattern=rf"\A(?!({'|'.join(_TAKEN)})\Z)[a-z][a-z0-9_]{{0,30}}\Z")]


class TargetMemory(Struct, frozen=True):
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


class MemoryTable(Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of a table ``[memory.NAME]``, see `TargetMemory`."""

    size: Annotated[int, rule(f"a number of bytes, 1 to {MOST_BYTES}", ge=1, le=MOST_BYTES)]
    cycles: Annotated[int, rule(_ACCESS, ge=1, le=MOST_ACCESS_CYCLES)]
    use: Annotated[tuple[Literal["data", "constants", "code"], ...], rule(_SOME, min_length=1)]
    load: Annotated[str, rule("the name of another memory")] = ""
    region: Annotated[
        str,
        rule(
            "a name of letters, digits and '_' for a linker script",
            pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,62}\Z",
        ),
    ] = ""
    prefetch: bool = False


def read_memories(tables: Mapping[str, MemoryTable]) -> tuple[tuple[TargetMemory, ...], list[str]]:
    """Return the memories of a target, in the order of its file, and the faults of these tables."""
    memories = tuple(
        TargetMemory(name, t.size, t.cycles, t.use, t.load, t.region or name.upper(), t.prefetch)
        for name, t in tables.items()
    )
    return memories, [*_faults(memories)]


def _faults(memories: tuple[TargetMemory, ...]) -> Iterator[str]:
    by_name = {memory.name: memory for memory in memories}
    for memory in memories:
        name = memory.name
        if len({*memory.use}) < len(memory.use):
            yield f"memory.{name}.use must be {_SOME}; it is {', '.join(memory.use)}"
        if memory.prefetch and (memory.use != ("constants",) or memory.load):
            yield (
                f"memory.{name} with prefetch must have the use constants alone, and no load; "
                f"use is {', '.join(memory.use)}"
            )
        yield from _load_faults(memory, by_name)
    for first, second in combinations(memories, 2):
        if first.region == second.region:
            yield (
                f"each memory must have its own linker region; memory.{first.name} and "
                f"memory.{second.name} are both {first.region}: give one of them another region"
            )


def _load_faults(memory: TargetMemory, by_name: Mapping[str, TargetMemory]) -> Iterator[str]:
    if not memory.load:
        return
    key = f"memory.{memory.name}.load"
    source = by_name.get(memory.load)
    if source is None or source is memory:
        yield f"{key} must name another memory; it is {shown(memory.load)}; memories are {', '.join(by_name)}"
    elif memory.use == ("data",):
        yield f"{key} applies to constants and code; its use is data alone: remove load"
    elif source.load or source.prefetch or "constants" not in source.use:
        yield (
            f"{key} must name a non-volatile memory: use must include constants, without load and prefetch; "
            f"memory.{source.name} is used for {', '.join(source.use)}"
            + (f" and loaded from {source.load}" if source.load else "")
            + (" and prefetched" if source.prefetch else "")
        )
