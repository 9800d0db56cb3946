"""What a pipeline takes at least for instructions, in whatever order, if none waits for another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from microfold.simulate.pipeline.instruction import Instruction
from microfold.simulate.pipeline.scoreboard import issue_cycles
from microfold.target.pipeline import Pipeline, ancestry


def least_cycles(pipeline: Pipeline, executed: Iterable[tuple[Instruction, int]]) -> int:
    """The cycles to issue instructions, or those of the unit that has most to do, whichever are more.

    A lower bound of what `Scoreboard` gives for any order of them, until all units are free again; of
    branches it has nothing but their issue.

    Args:
        executed: instructions, and how often each ran.
    """
    slots = pairable = fitting = 0
    busy: Counter[tuple[str, ...]] = Counter()
    classes: Counter[str] = Counter()
    for instruction, count in executed:
        rules = pipeline.issues[instruction.name]
        cycles = issue_cycles(instruction, rules)
        slots += cycles * count
        for name in ancestry(instruction.name):
            classes[name] += count
        if rules.units:
            busy[rules.units] += max(rules.unit_busy, cycles) * count
        if pipeline.width > 1 and cycles == 1 and not rules.alone and _may_pair(pipeline, instruction):
            pairable += count
            fitting += count * (not pipeline.one_of.isdisjoint(ancestry(instruction.name)))
    pairs = min(pairable // 2, fitting) if pipeline.one_of else pairable // 2
    # Classes that are not issued beside their own kind need a cycle each, as if they had a unit.
    single = (count for name, count in classes.items() if (name, name) in pipeline.never)
    return max(slots - pairs, *(_least_of(units, busy) for units in busy), *single, 0)


def _may_pair(pipeline: Pipeline, instruction: Instruction) -> bool:
    """Whether there is any instruction that it may be issued with."""
    if pipeline.halfwords and instruction.size != 2:
        return False
    names = [*ancestry(instruction.name)]
    return not any(("any", name) in pipeline.never and (name, "any") in pipeline.never for name in names)


def _least_of(units: tuple[str, ...], busy: Counter[tuple[str, ...]]) -> int:
    """Cycles of these units, if what only they compute is spread evenly over them."""
    return -(-sum(count for each, count in busy.items() if set(each) <= set(units)) // len(units))
