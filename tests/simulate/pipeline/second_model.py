"""A second estimate of a trace's cycles, written from what the targets' files and their classes say alone.

It shares no code with `microfold.simulate.pipeline`: it reads the targets' files itself, decodes on its own,
and moves a clock on, cycle by cycle, until the next instruction may be issued.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microfold.simulate.trace import Key, LayerCounts
from microfold.support.toml import read_toml
from microfold.target.pipeline import CLASSES

from .second_reading import Step, step

_TARGETS = Path(__file__).resolve().parents[3] / "targets"
# Long before anything is issued.
_NEVER = -1_000_000


class Core:
    """A pipeline, from the file of a target."""

    def __init__(self, table: Mapping[str, Any]):
        self.rules: dict[str, dict[str, Any]] = {}
        for kind in CLASSES:
            merged: dict[str, Any] = {}
            for each in reversed(kinds(kind)):
                merged.update(table["issues"].get(each, {}))
            self.rules[kind] = merged
        self.width: int = table.get("width", 1)
        self.taken: int = table.get("taken", 0)
        self.missed: int = table.get("missed", 0)
        self.never = {(older, younger) for older, younger in table.get("never", [])}
        self.halfwords: bool = table.get("halfwords", False)
        self.banks: bool = table.get("banks", False)
        self.one_of = set(table.get("one_of", []))
        self.apart: list[tuple[str, str, int]] = table.get("apart", [])
        self.leads: list[tuple[str, str, int]] = table.get("leads", [])


def core(name: str) -> Core:
    return Core(read_toml(_TARGETS / f"{name}.toml")["pipeline"])


def kinds(kind: str) -> list[str]:
    """A class and all that it is a kind of."""
    return [kind, *kinds(CLASSES[kind])] if kind else []


@dataclass
class Written:
    """Where a register's value comes from.

    Attributes:
        at: when it is there.
        loaded: whether a load brought it.
        chained: when a product of the same kind is added to it, None if no product made it.
    """

    at: int
    loaded: bool
    chained: int | None = None


class Clock:
    """Runs instructions in order, moving time on cycle by cycle."""

    def __init__(self, of: Core):
        self.core = of
        self.now = 0  # what may be issued next, is issued in this cycle or later
        self.partner: Step | None = None  # issued in the cycle before `now`, with room beside it
        self.values: dict[str, Written] = {}
        self.units: dict[str, int] = {}
        self.latest: dict[str, int] = {}  # when something of a class was issued

    def run(self, each: Step) -> None:
        rules = self.core.rules[each.kind]
        cycles = rules.get("busy", 1)
        if rules.get("words"):
            cycles = max(cycles, -(-each.words // rules["words"]))
        beside = (
            self.partner is not None
            and self._pair(self.partner, each)
            and self._ready(each, self.now - 1)
            and self._far(each, self.now - 1, self.core.leads)
        )
        cycle = self.now - 1 if beside else self.now
        while not self._ready(each, cycle):
            cycle += 1
        if beside:
            self.now, self.partner = cycle + max(cycles, 1), None
        else:
            leads = self.core.width == 2 and cycles == 1 and not rules.get("alone")
            leads = leads and (each.size == 2 or not self.core.halfwords)
            self.now, self.partner = cycle + cycles, each if leads else None
        self._done(each, rules, cycle, cycles, beside)

    def _ready(self, each: Step, cycle: int) -> bool:
        rules = self.core.rules[each.kind]
        for role, name in each.sources:
            value = self.values.get(name)
            if value is None:
                continue
            if role == "a" and value.chained is not None and "chained" in rules:
                late = value.chained > cycle
            else:
                late = value.at > cycle + self._stage(role, rules, value.loaded)
            if late:
                return False
        if not self._far(each, cycle, self.core.apart):
            return False
        units = rules.get("units", [])
        return not units or any(self.units.get(unit, _NEVER) <= cycle for unit in units)

    def _far(self, each: Step, cycle: int, distances: Iterable[tuple[str, str, int]]) -> bool:
        """Whether it comes late enough behind those that it keeps away from."""
        return all(
            cycle > self.latest.get(older, _NEVER) + least
            for older, younger, least in distances
            if younger in kinds(each.kind)
        )

    def _stage(self, role: str, rules: Mapping[str, Any], loaded: bool) -> int:
        if role == "r":
            return rules["loaded"] if loaded and "loaded" in rules else rules.get("read", 0)
        if role == "a" and loaded and "loaded_sum" in rules:
            return rules["loaded_sum"]
        keys = {"a": "accumulate", "x": "shifted", "s": "store", "@": "address", "i": "index", "f": "flags"}
        return rules.get(keys[role], 0)

    def _pair(self, older: Step, younger: Step) -> bool:
        of = self.core
        if of.rules[younger.kind].get("alone") or (of.halfwords and younger.size != 2):
            return False
        first, second = {*kinds(older.kind), "any"}, {*kinds(younger.kind), "any"}
        if any(a in first and b in second for a, b in of.never):
            return False
        if of.one_of and not of.one_of & (first | second):
            return False
        if of.banks and "load" in first and "load" in second:
            if not older.base or not younger.base or older.base[0] != younger.base[0]:
                return False
            return older.base[1] // 4 % 2 != younger.base[1] // 4 % 2
        return not set(older.targets) & set(younger.targets) - {"flags"}

    def _done(self, each: Step, rules: Mapping[str, Any], cycle: int, cycles: int, second: bool) -> None:
        late = rules.get("latency", 1)
        latency = late
        if "early" in rules and not each.conditional and (not second or rules.get("early_second")):
            there = all(
                name not in self.values or self.values[name].at <= cycle for name in each.reads_operands
            )
            latency = rules["early"] if there else late
        loads = "load" in kinds(each.kind)
        for name in each.targets:
            wait = late if name == "flags" else latency + max(cycles, 1) - 1
            chained = cycle + rules["chained"] if "chained" in rules else None
            self.values[name] = Written(cycle + wait, loads, chained)
        self.latest.update(dict.fromkeys(kinds(each.kind), cycle))
        if each.stepped:
            self.values[each.stepped] = Written(cycle + 1, loaded=False)
        free = [unit for unit in rules.get("units", []) if self.units.get(unit, _NEVER) <= cycle]
        if free:
            idle_longest = min(free, key=lambda unit: self.units.get(unit, _NEVER))
            self.units[idle_longest] = cycle + max(rules.get("unit_busy", 1), cycles)


def total_cycles(
    of: Core, layers: Iterable[LayerCounts], lines: Mapping[int, tuple[int, str, str]]
) -> list[float]:
    """The cycles of each layer: of every block behind the two before it, way by way, and of branches."""
    layers = list(layers)
    blocks = {
        key: _block(key[0], number, lines) for layer in layers for key, (number, _, _) in layer.blocks.items()
    }
    entries: dict[Key, dict[Key, int]] = {}
    for layer in layers:
        for (start, end), runs in layer.edges.items():
            ways = entries.setdefault(end, {})
            ways[start] = ways.get(start, 0) + runs
    usual = {end: max((runs, start) for start, runs in ways.items())[1] for end, ways in entries.items()}

    def behind(start: Key | None, end: Key) -> int:
        clock = Clock(of)
        before = [key for key in (usual.get(start) if start else None, start) if key]
        for each in (each for key in before for each in blocks.get(key, [])):
            clock.run(each)
        begun = clock.now
        for each in blocks[end]:
            clock.run(each)
        return clock.now - begun

    totals: list[float] = []
    for layer in layers:
        total = 0.0
        for key, (_, runs, _) in layer.blocks.items():
            into = {start: number for (start, end), number in layer.edges.items() if end == key}
            out = {end: number for (start, end), number in layer.edges.items() if start == key}
            chosen = sorted(into, key=lambda way: (into[way], way))[-3:]  # the mean of three is that of all
            known = sum(into[way] for way in chosen)
            mean = sum(behind(way, key) * into[way] for way in chosen) / known if known else behind(None, key)
            total += runs * mean + _branches(of, blocks[key][-1], runs, out)
        totals.append(total)
    return totals


def _block(address: int, number: int, lines: Mapping[int, tuple[int, str, str]]) -> list[Step]:
    found: list[Step] = []
    for _ in range(number):
        found.append(step(address, *lines[address]))
        address += found[-1].size
    return found


def _branches(of: Core, last: Step, runs: int, out: Mapping[Key, int]) -> float:
    """Taken ones, and those whose predictor, right about the more frequent way, is wrong."""
    leaves = last.kind.startswith("branch") or "pc" in last.targets
    if not leaves:
        return 0.0
    straight = sum(number for (start, _), number in out.items() if start == last.address + last.size)
    jumped = sum(out.values()) - straight
    missed = 0
    if last.kind == "branch_conditional":
        missed = min(jumped, straight)
    elif last.kind != "branch":
        missed = max(0, runs - max(out.values(), default=runs))
    return float(of.taken * jumped + of.missed * missed)
