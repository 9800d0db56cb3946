"""Scoreboard: in-order issue of instructions on a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from microfold.simulate.pipeline.instruction import FLAGS, Instruction
from microfold.target.pipeline import Issue, Pipeline, ancestry

_LONG_AGO = -(1 << 30)


class Scoreboard:
    """State of a pipeline.

    Attributes:
        clock: earliest cycle in which the next instruction can be issued.
    """

    def __init__(self, pipeline: Pipeline):
        self._pipeline = pipeline
        self._cycle = 0
        self._first: Instruction | None = None  # first instruction of an incomplete pair
        self._ready: dict[str, int] = {}
        self._loaded: set[str] = set()
        self._sums: dict[str, int] = {}  # earliest accumulation onto each result of a `chained` class
        self._followed = frozenset(older for older, _ in (*pipeline.apart, *pipeline.leads))
        self._latest: dict[str, int] = {}  # latest issue of each followed class
        self._units: dict[str, int] = {}
        self._held = _LONG_AGO

    @property
    def clock(self) -> int:
        return self._cycle + (self._first is not None)

    def issue(self, instruction: Instruction) -> int:
        """Issue the next instruction, and return the cycle of the issue."""
        rules = self._pipeline.issues[instruction.name]
        unit = min(rules.units, key=self._free) if rules.units else ""
        earliest = max(self._operands(instruction, rules), self._free(unit))
        vector = instruction.name.startswith("vector")
        if not vector:
            earliest = max(earliest, self._held)
        earliest = max(earliest, self._apart(instruction, self._pipeline.apart))
        second = (
            self._first is not None
            and not rules.alone
            and earliest <= self._cycle
            and self._goes_with(self._first, instruction)
            and self._apart(instruction, self._pipeline.leads) <= self._cycle
        )
        busy = issue_cycles(instruction, rules)
        if second:
            at = self._cycle
            self._cycle += max(busy, 1)
            self._first = None
        else:
            at = max(self.clock, earliest)
            opens = self._pipeline.width > 1 and not rules.alone and busy == 1 and self._may_lead(instruction)
            self._cycle = at if opens else at + busy
            self._first = instruction if opens else None
        if unit:
            self._units[unit] = at + max(rules.unit_busy, busy)
        if rules.holds:
            self._held = at + rules.holds
        self._finish(instruction, rules, at, busy, second)
        return at

    def _free(self, unit: str) -> int:
        return self._units.get(unit, _LONG_AGO)

    def _apart(self, instruction: Instruction, distances: Mapping[tuple[str, str], int]) -> int:
        """Return the first cycle that has the required distances from earlier instructions."""
        if not self._latest:
            return _LONG_AGO
        names = frozenset(ancestry(instruction.name))
        return max(
            (
                self._latest.get(older, _LONG_AGO) + cycles + 1
                for (older, younger), cycles in distances.items()
                if younger in names
            ),
            default=_LONG_AGO,
        )

    def _operands(self, instruction: Instruction, rules: Issue) -> int:
        """Return the first cycle in which all operands are available in time."""
        waits = [_LONG_AGO]
        ready = self._ready
        for name in instruction.reads:
            stage = rules.read if rules.loaded is None or name not in self._loaded else rules.loaded
            waits.append(ready.get(name, _LONG_AGO) - stage)
        waits += [self._summed(name, rules) for name in instruction.accumulates]
        waits += [ready.get(name, _LONG_AGO) - rules.shifted for name in instruction.shifted]
        waits += [ready.get(name, _LONG_AGO) - rules.store for name in instruction.stores]
        for name in instruction.addresses:
            stage = rules.index if name[0] == "s" and name != "sp" else rules.address
            waits.append(ready.get(name, _LONG_AGO) - stage)
        if instruction.reads_flags:
            waits.append(ready.get(FLAGS, _LONG_AGO) - rules.flags)
        return max(waits)

    def _summed(self, name: str, rules: Issue) -> int:
        """Return the first cycle in which a product can be accumulated onto a register."""
        if name in self._sums and rules.chained is not None:
            return self._sums[name]
        stage = rules.accumulate
        if rules.loaded_sum is not None and name in self._loaded:
            stage = rules.loaded_sum
        return self._ready.get(name, _LONG_AGO) - stage

    def _finish(self, instruction: Instruction, rules: Issue, at: int, busy: int, second: bool) -> None:
        latency = rules.latency
        may_be_early = (not second or rules.early_second) and not instruction.reads_flags
        if rules.early is not None and may_be_early and self._are_there(instruction.reads, at):
            latency = rules.early
        done = at + latency + max(busy, 1) - 1
        for name in instruction.writes:
            # Flags are written at the late stage, even if the result is early.
            self._ready[name] = at + rules.latency if name == FLAGS else done
        for name in instruction.writes:
            if rules.chained is None:
                self._sums.pop(name, None)
            else:
                self._sums[name] = at + rules.chained
        self._latest |= dict.fromkeys(self._followed.intersection(ancestry(instruction.name)), at)
        if _is_load(instruction):
            self._loaded.update(instruction.writes)
        else:
            self._loaded.difference_update(instruction.writes)
        if instruction.updates:
            self._ready[instruction.updates] = at + 1
            self._loaded.discard(instruction.updates)

    def _are_there(self, names: Iterable[str], cycle: int) -> bool:
        return all(self._ready.get(name, _LONG_AGO) <= cycle for name in names)

    def _may_lead(self, instruction: Instruction) -> bool:
        return not self._pipeline.halfwords or (instruction.size == 2)

    def _goes_with(self, older: Instruction, younger: Instruction) -> bool:
        pipeline = self._pipeline
        first, last = [*ancestry(older.name), "any"], [*ancestry(younger.name), "any"]
        if any((a, b) in pipeline.never for a in first for b in last):
            return False
        if pipeline.halfwords and younger.size != 2:
            return False
        if pipeline.one_of and pipeline.one_of.isdisjoint([*first, *last]):
            return False
        if pipeline.banks and _is_load(older) and _is_load(younger):
            return _other_bank(older, younger)
        return set(older.writes).isdisjoint({*younger.writes} - {FLAGS})


def cycles_behind(
    pipeline: Pipeline, before: Iterable[Sequence[Instruction]], block: Sequence[Instruction]
) -> int:
    """Return the cycles that a block adds after other blocks."""
    board = Scoreboard(pipeline)
    for each in before:
        for instruction in each:
            board.issue(instruction)
    start = board.clock
    for instruction in block:
        board.issue(instruction)
    return board.clock - start


def issue_cycles(instruction: Instruction, rules: Issue) -> int:
    """Return the issue cycles of an instruction; 0: it is issued together with the one before it."""
    return max(rules.busy, -(-instruction.words // rules.words)) if rules.words else rules.busy


def _is_load(instruction: Instruction) -> bool:
    return "load" in ancestry(instruction.name)


def _other_bank(older: Instruction, younger: Instruction) -> bool:
    if older.base != younger.base or not older.base or older.updates or older.indexed or younger.indexed:
        return False
    return bool((older.offset ^ younger.offset) & 4)
