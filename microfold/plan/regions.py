"""Assignment of the context and of each constant to a memory region of the target.

The cost of a placement is the sum over all items of accesses times the cycles per access. The context is
placed first, into the fastest data memory that can hold it, because each product reads it. Constants follow:
those with the most accesses per byte get the fastest memory. Then items are moved, or exchanged in pairs, as
long as the cost decreases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from msgspec import Struct

from microfold.errors import GraphError, InputError
from microfold.target.memories import MOST_ACCESS_CYCLES, TargetMemory


class RegionItem(Struct, frozen=True, eq=False):
    """Item that must be placed in one memory.

    Attributes:
        size: size in bytes, rounded up so that order and alignment of other items add nothing.
        accesses: estimated accesses of one run.
        use: ``data`` or ``constants``.
        direct: whether the core reads it in place, so that it must not be in a memory that is prefetched
            from.
    """

    label: str
    size: int
    accesses: int
    use: str
    direct: bool = True

    def may_be_in(self, memory: TargetMemory) -> bool:
        """Return whether a memory may hold this item."""
        return self.use in memory.use and not (self.direct and memory.prefetch)


class NoRoomError(InputError):
    """An item fits into none of the memories that may hold it."""

    def __init__(self, item: RegionItem, text: str):
        self.item = item
        super().__init__(text)


class RegionPlan(Struct, frozen=True):
    """Memory of each item.

    Attributes:
        memories: memories of the target.
        places: memory of each item.
    """

    memories: tuple[TargetMemory, ...]
    places: Mapping[RegionItem, TargetMemory]

    def used(self, memory: TargetMemory, use: str) -> int:
        """Return the bytes of a memory with a use; ``load``: initial content for another memory."""
        return sum(
            item.size
            for item, home in self.places.items()
            if (use == "load" and memory.name in _names(item, home)[1:])
            or (home is memory and item.use == use)
        )

    def fill(self, memory: TargetMemory) -> int:
        """Return the number of used bytes of a memory."""
        return sum(self.used(memory, use) for use in ("data", "constants", "load"))


class Regions(Struct, frozen=True):
    """Memories of a program's parts.

    Attributes:
        context: memory in which the firmware must define its context.
        constants: memory of each constant without an explicit placement, by `program.constant_key`.
        arenas: memories of the parts of the arena; the context's memory if the arena is part of the context.
    """

    plan: RegionPlan
    context: TargetMemory
    constants: Mapping[tuple[str, str, bytes], TargetMemory]
    arenas: tuple[TargetMemory, ...]


def plan_regions(items: Sequence[RegionItem], memories: Sequence[TargetMemory]) -> RegionPlan:
    """Assign a memory to each item.

    Args:
        items: items in a deterministic order.

    Raises:
        InputError: an item fits nowhere.
    """
    search = _Search(memories)
    for item in sorted(items, key=lambda item: item.use != "data"):
        _require_home(item, memories)
    data = sorted((i for i in items if i.use == "data"), key=lambda i: -i.accesses)
    constants = [item for item in items if item.use == "constants"]
    dense = sorted(constants, key=lambda item: -item.accesses / max(item.size, 1))
    # Placement by density may leave no space for large items.
    large = sorted(constants, key=lambda item: -item.size)
    for order in (dense, large):
        search.clear()
        if (left := search.fill([*data, *order])) is None:
            search.improve(constants)
            return RegionPlan(tuple(memories), {item: search.places[item] for item in items})
    raise _does_not_fit(left, search, memories)


def check_regions(items: Sequence[RegionItem], plan: RegionPlan) -> None:
    """Verify that each item is in a permitted memory, and that none overflows.

    The checker shares no code with the planner.

    Raises:
        GraphError: lists all faults.
    """
    faults: list[str] = []
    taken = {memory.name: 0 for memory in plan.memories}
    for item in items:
        home = plan.places.get(item)
        if home is None or home.name not in taken:
            faults.append(f"{item.label} is in no memory")
            continue
        if item.use not in home.use:
            faults.append(f"{item.label} is in {home.name}, which is not for {item.use}")
        if item.direct and home.prefetch:
            faults.append(f"{item.label} is in {home.name}, but is not prefetched")
        taken[home.name] += item.size
        if home.load and item.use != "data":
            taken[home.load] += item.size
    for memory in plan.memories:
        if taken[memory.name] > memory.size:
            faults.append(f"{memory.name} has {memory.size} bytes, but holds {taken[memory.name]}")
    if faults:
        raise GraphError("invalid placement in memories: " + "; ".join(faults))


def _cycles(memory: TargetMemory) -> int:
    """Return the cycles of one access. Prefetched memories come last: they need space in the arena."""
    return memory.cycles + MOST_ACCESS_CYCLES * memory.prefetch


class _Search:
    """Placement that is being built."""

    def __init__(self, memories: Sequence[TargetMemory]):
        self.memories = sorted(memories, key=_cycles)
        self.clear()

    def clear(self) -> None:
        """Remove all items."""
        self.places: dict[RegionItem, TargetMemory] = {}
        self.free = {memory.name: memory.size for memory in self.memories}

    def fill(self, items: Sequence[RegionItem]) -> RegionItem | None:
        """Put each item into the fastest memory that has space. Return the first item that fits nowhere."""
        for item in items:
            home = next((memory for memory in self.memories if self._fits([(item, memory)])), None)
            if home is None:
                return item
            self._put(item, home)
        return None

    def improve(self, items: Sequence[RegionItem]) -> None:
        """Move and exchange items as long as that saves cycles."""
        better = True
        while better:
            saved = [self._moved(item) for item in items]
            saved += [self._exchanged(*pair) for pair in combinations(items, 2)]
            better = any(saved)

    def _moved(self, item: RegionItem) -> bool:
        home = self.places[item]
        faster = (memory for memory in self.memories if _cycles(memory) < _cycles(home))
        return any(self._try([(item, memory)]) for memory in faster)

    def _exchanged(self, one: RegionItem, other: RegionItem) -> bool:
        first, second = self.places[one], self.places[other]
        if (_cycles(second) - _cycles(first)) * (one.accesses - other.accesses) >= 0:
            return False
        return self._try([(one, second), (other, first)])

    def _try(self, moves: Sequence[tuple[RegionItem, TargetMemory]]) -> bool:
        """Make moves if there is space for all of them."""
        before = [(item, self.places[item]) for item, _ in moves]
        for item, _ in moves:
            self._take(item)
        fits = self._fits(moves)
        for item, memory in moves if fits else before:
            self._put(item, memory)
        return fits

    def _fits(self, moves: Sequence[tuple[RegionItem, TargetMemory]]) -> bool:
        needed: dict[str, int] = {}
        for item, memory in moves:
            if not item.may_be_in(memory):
                return False
            for name in _names(item, memory):
                needed[name] = needed.get(name, 0) + item.size
        return all(size <= self.free[name] for name, size in needed.items())

    def _put(self, item: RegionItem, memory: TargetMemory) -> None:
        self.places[item] = memory
        for name in _names(item, memory):
            self.free[name] -= item.size

    def _take(self, item: RegionItem) -> None:
        for name in _names(item, self.places.pop(item)):
            self.free[name] += item.size


def _names(item: RegionItem, memory: TargetMemory) -> list[str]:
    """Return the memory of an item, and the memory that holds its initial content at start-up, if any."""
    return [memory.name, memory.load] if memory.load and item.use != "data" else [memory.name]


def _require_home(item: RegionItem, memories: Sequence[TargetMemory]) -> None:
    """Raise InputError if no memory, even if empty, could hold the item."""
    homes = [memory for memory in memories if item.may_be_in(memory)]
    if not homes:
        raise NoRoomError(
            item,
            f"{item.label} requires a memory for {item.use}, but the target has none: "
            f"give one of {', '.join(m.name for m in memories)} this use",
        )
    largest = max(homes, key=lambda memory: memory.size)
    if item.size > largest.size:
        hint = (
            "choose --ram, --io caller or rows, or a smaller model"
            if item.use == "data"
            else "choose a smaller model"
        )
        raise NoRoomError(
            item,
            f"{item.label} must fit into one memory for {item.use}; it has {item.size} bytes, but the "
            f"largest, {largest.name}, has {largest.size}: {hint}, or give the target a larger memory",
        )


def _does_not_fit(item: RegionItem, search: _Search, memories: Sequence[TargetMemory]) -> NoRoomError:
    homes = [memory for memory in memories if item.may_be_in(memory)]
    free = ", ".join(f"{memory.name} {search.free[memory.name]} of {memory.size}" for memory in homes)
    return NoRoomError(
        item,
        f"all {item.use} must fit into the target's memories; {item.label} has {item.size} bytes; free: "
        f"{free}: use --optimize size, a smaller model, or larger memories",
    )
