"""Which memory of the target holds what: the context, and each constant.

The sum of accesses times the cycles of one is what a placement is measured by. The context goes first, into
the fastest memory for data that holds it: each product reads of it. Constants follow, those with most
accesses for each byte into the fastest memory; then single ones move, or two change places, as long as that
is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from microfold.errors import GraphError, InputError
from microfold.support.frozen import frozen
from microfold.target.memories import MOST_ACCESS_CYCLES, Memory


@frozen(eq=False)
class Item:
    """What lies in one memory.

    Attributes:
        size: bytes, rounded up so that neither order nor alignment of others adds any.
        accesses: of one run, estimated.
        use: ``data`` or ``constants``.
        direct: it must be where the core reads it, not where it is prefetched from.
    """

    label: str
    size: int
    accesses: int
    use: str
    direct: bool = True

    def may_be_in(self, memory: Memory) -> bool:
        """Whether a memory is for such things."""
        return self.use in memory.use and not (self.direct and memory.prefetch)


class NoRoomError(InputError):
    """An item fits none of the memories that it may lie in."""

    def __init__(self, item: Item, text: str):
        self.item = item
        super().__init__(text)


@frozen
class RegionPlan:
    """Where everything lies.

    Attributes:
        memories: those of the target.
        places: the memory of each item.
    """

    memories: tuple[Memory, ...]
    places: Mapping[Item, Memory]

    def used(self, memory: Memory, use: str) -> int:
        """Bytes of a memory that have a use; ``load``: from which another one is filled at start-up."""
        return sum(
            item.size
            for item, home in self.places.items()
            if (use == "load" and memory.name in _names(item, home)[1:])
            or (home is memory and item.use == use)
        )

    def fill(self, memory: Memory) -> int:
        """Bytes of a memory that are taken."""
        return sum(self.used(memory, use) for use in ("data", "constants", "load"))


@frozen
class Regions:
    """Where a program's parts lie.

    Attributes:
        context: the memory that the firmware is to define its context in.
        constants: by `program.constant_key`, the memory of each constant that nothing else places.
        arenas: the memories for the parts of the arena; that of the context where it is a part of that.
    """

    plan: RegionPlan
    context: Memory
    constants: Mapping[tuple[str, str, bytes], Memory]
    arenas: tuple[Memory, ...]


def plan_regions(items: Sequence[Item], memories: Sequence[Memory]) -> RegionPlan:
    """A memory for each item.

    Args:
        items: in a deterministic order.

    Raises:
        InputError: something fits nowhere.
    """
    search = _Search(memories)
    for item in sorted(items, key=lambda item: item.use != "data"):
        _require_home(item, memories)
    data = sorted((i for i in items if i.use == "data"), key=lambda i: -i.accesses)
    constants = [item for item in items if item.use == "constants"]
    dense = sorted(constants, key=lambda item: -item.accesses / max(item.size, 1))
    # What is placed by its density may leave no room for the large ones.
    large = sorted(constants, key=lambda item: -item.size)
    for order in (dense, large):
        search.clear()
        if (left := search.fill([*data, *order])) is None:
            search.improve(constants)
            return RegionPlan(tuple(memories), {item: search.places[item] for item in items})
    raise _does_not_fit(left, search, memories)


def check_regions(items: Sequence[Item], plan: RegionPlan) -> None:
    """Verify that all is somewhere it may be, and that nothing overflows. Shares no code with the planner.

    Raises:
        GraphError: lists what is wrong.
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
            faults.append(f"{item.label} is in {home.name}, and nothing prefetches it")
        taken[home.name] += item.size
        if home.load and item.use != "data":
            taken[home.load] += item.size
    for memory in plan.memories:
        if taken[memory.name] > memory.size:
            faults.append(f"{memory.name} has {memory.size} bytes; {taken[memory.name]} are in it")
    if faults:
        raise GraphError("the placement in memories is wrong: " + "; ".join(faults))


def _cycles(memory: Memory) -> int:
    """Of one access; what is prefetched takes room in the arena, so that it comes last."""
    return memory.cycles + MOST_ACCESS_CYCLES * memory.prefetch


class _Search:
    """A placement under way."""

    def __init__(self, memories: Sequence[Memory]):
        self.memories = sorted(memories, key=_cycles)
        self.clear()

    def clear(self) -> None:
        """Nothing is placed."""
        self.places: dict[Item, Memory] = {}
        self.free = {memory.name: memory.size for memory in self.memories}

    def fill(self, items: Sequence[Item]) -> Item | None:
        """Each item into the fastest memory that has room; the first that fits nowhere."""
        for item in items:
            home = next((memory for memory in self.memories if self._fits([(item, memory)])), None)
            if home is None:
                return item
            self._put(item, home)
        return None

    def improve(self, items: Sequence[Item]) -> None:
        """Moves and exchanges as long as one saves cycles."""
        better = True
        while better:
            saved = [self._moved(item) for item in items]
            saved += [self._exchanged(*pair) for pair in combinations(items, 2)]
            better = any(saved)

    def _moved(self, item: Item) -> bool:
        home = self.places[item]
        faster = (memory for memory in self.memories if _cycles(memory) < _cycles(home))
        return any(self._try([(item, memory)]) for memory in faster)

    def _exchanged(self, one: Item, other: Item) -> bool:
        first, second = self.places[one], self.places[other]
        if (_cycles(second) - _cycles(first)) * (one.accesses - other.accesses) >= 0:
            return False
        return self._try([(one, second), (other, first)])

    def _try(self, moves: Sequence[tuple[Item, Memory]]) -> bool:
        """Makes moves if there is room for all."""
        before = [(item, self.places[item]) for item, _ in moves]
        for item, _ in moves:
            self._take(item)
        fits = self._fits(moves)
        for item, memory in moves if fits else before:
            self._put(item, memory)
        return fits

    def _fits(self, moves: Sequence[tuple[Item, Memory]]) -> bool:
        needed: dict[str, int] = {}
        for item, memory in moves:
            if not item.may_be_in(memory):
                return False
            for name in _names(item, memory):
                needed[name] = needed.get(name, 0) + item.size
        return all(size <= self.free[name] for name, size in needed.items())

    def _put(self, item: Item, memory: Memory) -> None:
        self.places[item] = memory
        for name in _names(item, memory):
            self.free[name] -= item.size

    def _take(self, item: Item) -> None:
        for name in _names(item, self.places.pop(item)):
            self.free[name] += item.size


def _names(item: Item, memory: Memory) -> list[str]:
    """Where an item takes bytes: in its memory, then in the one that this is filled from at start-up."""
    return [memory.name, memory.load] if memory.load and item.use != "data" else [memory.name]


def _require_home(item: Item, memories: Sequence[Memory]) -> None:
    """Raises InputError if no memory, empty, could hold the item."""
    homes = [memory for memory in memories if item.may_be_in(memory)]
    if not homes:
        raise NoRoomError(
            item,
            f"{item.label} must lie in a memory for {item.use}; the target has none: "
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
            f"{item.label} must fit one memory for {item.use}; it has {item.size} bytes, the largest, "
            f"{largest.name}, has {largest.size}: {hint}, or give the target a larger memory",
        )


def _does_not_fit(item: Item, search: _Search, memories: Sequence[Memory]) -> NoRoomError:
    homes = [memory for memory in memories if item.may_be_in(memory)]
    free = ", ".join(f"{memory.name} {search.free[memory.name]} of {memory.size}" for memory in homes)
    return NoRoomError(
        item,
        f"all {item.use} must fit the target's memories; {item.label} has {item.size} bytes, and free are "
        f"{free}: use --optimize size, a smaller model, or larger memories",
    )
