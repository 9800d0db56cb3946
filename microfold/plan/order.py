"""Search for the order of calls with the smallest arena: best-first search over sets of completed calls.

The need of a call depends on the set of calls before it, not on their order. An order is therefore a path
through these sets, and the best path has the least maximum need. A call is made immediately if it cannot be a
disadvantage: it needs no more than the path so far, and leaves no more bytes alive than before. If there are
too many sets, the result is the better one of the given order and a depth-first order.

The order with the least need does not always have the smallest plan, so callers must compare plans.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from microfold.plan.bound import shared
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap, OverlapPermission
from microfold.plan.problem import units

# Maximum number of visited calls, over all sets.
ORDER_LIMIT = 20_000
# Number of calls with the largest need that are checked for a lower need in another order.
FULLEST = 4


class CallNeeds(Struct, frozen=True, eq=False):
    """Requirements of a call, independent of the order.

    Attributes:
        before: indices of the calls whose results it uses.
        reads, writes: storages.
        target: storage of the first output, if it is in the arena.
        allowed: overlaps that the kernel allows.
        scratch: scratch memory in bytes.
    """

    before: frozenset[int]
    reads: Sequence[Storage]
    writes: Sequence[Storage]
    target: Storage | None
    allowed_overlaps: Sequence[OverlapPermission]
    scratch: int


class _Life(NamedTuple):
    """Lifetime of a storage, as sets of calls (bit masks).

    Attributes:
        parts: calls that compute it.
        users: calls that compute or read it.
        kept: whether it is alive until the end.
        given: whether it is alive from the start.
    """

    size: int
    parts: int
    users: int
    kept: bool
    given: bool


class _Done(NamedTuple):
    """State after some calls.

    Attributes:
        calls: completed calls, as a bit mask.
        held: number of units that are alive.
    """

    calls: int
    held: int


class _Path(Struct, frozen=True, order=True):
    """Path to a set of completed calls. Paths compare by peak, then by the number of remaining calls.

    Attributes:
        left: number of remaining calls.
        number: unique number, to order equal paths; the fields after it are never compared.
        last: index of the last call, or -1.
        ready: calls that were possible as the last call.
    """

    peak: int
    left: int
    number: int
    done: _Done
    last: int
    ready: Sequence[int]


class _Search:
    def __init__(self, calls: Sequence[CallNeeds]):
        self.calls = calls
        self.steps = ORDER_LIMIT
        self._index: dict[Storage, int] = {}
        self._lives: list[_Life] = []
        for number, call in enumerate(calls):
            for storage in dict.fromkeys((*call.reads, *call.writes)):
                self._note(storage, 1 << number, written=storage in call.writes)
        self._after: list[list[int]] = [[] for _ in calls]
        for number, call in enumerate(calls):
            for earlier in sorted(call.before):
                self._after[earlier].append(number)
        self._before = [sum(1 << earlier for earlier in call.before) for call in calls]
        # Lifetimes that may begin or end with each call, and the units of its scratch memory.
        self._begin = [self._lives_of(call.writes, lambda life: not life.given) for call in calls]
        self._end = [
            self._lives_of((*call.reads, *call.writes), lambda life: not life.kept) for call in calls
        ]
        self._scratch = [units(call.scratch) for call in calls]
        self._saved: dict[tuple[int, tuple[int, ...]], int] = {}

    def _note(self, storage: Storage, bit: int, *, written: bool) -> None:
        if storage not in self._index:
            self._index[storage] = len(self._lives)
            kept = storage.last >= len(self.calls)
            self._lives.append(_Life(units(storage.size), 0, 0, kept, storage.first < 0))
        index = self._index[storage]
        life = self._lives[index]
        parts = life.parts | (bit if written else 0)
        self._lives[index] = life._replace(parts=parts, users=life.users | bit)

    def start(self) -> _Done:
        return _Done(0, sum(life.size for life in self._lives if life.given))

    def step(self, state: _Done, number: int) -> tuple[int, _Done]:
        """Return the units that a call needs, and the state after it."""
        self.steps -= 1
        done = state.calls | 1 << number
        held, dying = state.held, dict[int, int]()
        for _, life in self._begin[number]:
            if not life.parts & state.calls:
                held += life.size
        for index, life in self._end[number]:
            if not life.users & ~done:
                dying[index] = life.size
        need = held + self._scratch[number] - self._shared(state, number, dying)
        return need, _Done(done, held - sum(dying.values()))

    def _lives_of(
        self, storages: Iterable[Storage], wanted: Callable[[_Life], bool]
    ) -> list[tuple[int, _Life]]:
        """Return the lifetimes of some storages, without duplicates, with their numbers."""
        numbers = dict.fromkeys(self._index[storage] for storage in storages)
        return [(number, self._lives[number]) for number in numbers if wanted(self._lives[number])]

    def _shared(self, state: _Done, number: int, dying: Collection[int]) -> int:
        """Return the units that the call's first output can share with dying inputs."""
        call = self.calls[number]
        if call.target is None or self._lives[self._index[call.target]].parts & state.calls:
            return 0
        used = tuple(
            i for i, allowed in enumerate(call.allowed_overlaps) if self._index[allowed.source] in dying
        )
        if (number, used) not in self._saved:
            self._saved[number, used] = shared_if_dying(call.target, [call.allowed_overlaps[i] for i in used])
        return self._saved[number, used]

    def needs(self, order: Iterable[int]) -> list[int]:
        """Return the units that each call needs in an order."""
        state, needs = self.start(), list[int]()
        for number in order:
            need, state = self.step(state, number)
            needs.append(need)
        return needs

    def depth_first(self) -> list[int]:
        """Return an order with each call right before its reader, starting with the largest excess need.

        This is optimal for trees (Sethi and Ullman, "The generation of optimal code for arithmetic
        expressions", 1970), and fast for all graphs.
        """
        peaks: list[int] = []
        leaves = [sum(units(storage.size) for storage in call.writes) for call in self.calls]
        wanted: list[list[int]] = []
        for number, call in enumerate(self.calls):
            first = sorted(call.before, key=lambda i: (leaves[i] - peaks[i], i))
            held, peak = 0, leaves[number] + units(call.scratch)
            for earlier in first:
                peak = max(peak, held + peaks[earlier])
                held += leaves[earlier]
            wanted.append(first)
            peaks.append(max(peak, held + leaves[number]))
        order: dict[int, None] = {}
        for last in (i for i, after in enumerate(self._after) if not after):
            waiting = [(last, iter(wanted[last]))]
            while waiting:
                number, rest = waiting[-1]
                missing = next((i for i in rest if i not in order), None)
                if missing is None:
                    order[number] = None
                    waiting.pop()
                else:
                    waiting.append((missing, iter(wanted[missing])))
        return [*order]

    def always_alive(self, number: int) -> int:
        """Return the units alive in a call in every order: from calls before it for calls after it."""
        earlier = _reached(number, [sorted(call.before) for call in self.calls])
        later = _reached(number, self._after)
        return sum(
            life.size
            for life in self._lives
            if (life.given or life.parts & earlier) and (life.kept or life.users & later)
        )

    def least_need(self, number: int) -> int:
        """Return the units that a call needs in every order."""
        every = range(len(self._lives))
        scratch = units(self.calls[number].scratch)
        return self.always_alive(number) + scratch - self._shared(_Done(0, 0), number, every)

    def run(self, limit: int) -> list[int] | None:
        """Return the order with the least peak below the limit; None if none exists or steps run out."""
        ready = [i for i, before in enumerate(self._before) if not before]
        waiting = [_Path(0, len(self.calls), 0, self.start(), -1, ready)]
        peaks: dict[int, int] = {0: 0}
        came: dict[int, tuple[int, int]] = {}
        number = 0
        while waiting and self.steps > 0:
            path = heapq.heappop(waiting)
            state = path.done
            if peaks[state.calls] < path.peak:
                continue
            if path.left == 0:
                return _trace(came, state.calls)
            ready = self._ready(path)
            found = [(call, *self.step(state, call)) for call in ready]
            free = next((f for f in found if f[1] <= path.peak and f[2].held <= state.held), None)
            for call, need, after in [free] if free else found:
                peak = max(path.peak, need)
                if peak < limit and peak < peaks.get(after.calls, limit):
                    peaks[after.calls], came[after.calls] = peak, (state.calls, call)
                    number += 1
                    heapq.heappush(waiting, _Path(peak, path.left - 1, number, after, call, ready))
        return None

    def _ready(self, path: _Path) -> list[int]:
        """Return the calls that may come next."""
        if path.last < 0:
            return [*path.ready]
        woken = [after for after in self._after[path.last] if not self._before[after] & ~path.done.calls]
        return sorted([*(i for i in path.ready if i != path.last), *woken])


def _reached(number: int, successors: Sequence[Sequence[int]]) -> int:
    """Return a call and all calls that are reachable from it, as a bit mask."""
    found, waiting = 1 << number, [number]
    while waiting:
        for other in successors[waiting.pop()]:
            if not found >> other & 1:
                found |= 1 << other
                waiting.append(other)
    return found


def _trace(came: Mapping[int, tuple[int, int]], done: int) -> list[int]:
    order: list[int] = []
    while done:
        done, call = came[done]
        order.append(call)
    return order[::-1]


def better_order(calls: Sequence[CallNeeds]) -> list[int] | None:
    """Return another order of the calls, as indices, with a smaller maximum need; None if none was found."""
    search = _Search(calls)
    needs = search.needs(range(len(calls)))
    peak = max(needs, default=0)
    fullest = [number for number, need in enumerate(needs) if need == peak]
    if not fullest or any(search.least_need(number) == peak for number in fullest[:FULLEST]):
        return None
    found: list[int] | None = search.depth_first()
    limit = max(search.needs(found))
    if limit >= peak:
        found, limit = None, peak
    return search.run(limit) or found


def alive_in_any_order(calls: Sequence[CallNeeds]) -> list[int]:
    """Return the units that are alive in each call in every order, without scratch memory."""
    search = _Search(calls)
    return [search.always_alive(number) for number in range(len(calls))]


def shared_if_dying(target: Storage, allowed: Sequence[OverlapPermission]) -> int:
    """Return the units that the first output of a call can share with inputs, if all of them die."""
    born = Storage(target.label, target.size, 0, 1)
    dying = [(Storage(each.source.label, each.source.size, -1, 0), each) for each in allowed]
    return shared([Overlap(source, born, each.distance, each.exact) for source, each in dying])
