"""Lower bound of a pipeline's cycles for a set of instructions, in any order and without stalls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from microfold.simulate.pipeline.instruction import Instruction
from microfold.simulate.pipeline.scoreboard import issue_cycles
from microfold.target.pipeline import Pipeline, ancestry


def least_cycles(pipeline: Pipeline, executed: Iterable[tuple[Instruction, int]]) -> int:
    """Return the cycles to issue the instructions, or the cycles of the busiest unit if they are more.

    This is a lower bound of the result of `Scoreboard` for any order, up to the cycle in which all units are
    free. Branches count only with their issue.

    Args:
        executed: instructions with their numbers of executions.
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
    # Instructions that cannot be issued with their own class need a cycle each, like a shared unit.
    single = (count for name, count in classes.items() if (name, name) in pipeline.never)
    return max(slots - pairs, *(_least_of(units, busy) for units in busy), *single, 0)


def _may_pair(pipeline: Pipeline, instruction: Instruction) -> bool:
    if pipeline.halfwords and instruction.size != 2:
        return False
    names = [*ancestry(instruction.name)]
    return not any(("any", name) in pipeline.never and (name, "any") in pipeline.never for name in names)


def _least_of(units: tuple[str, ...], busy: Counter[tuple[str, ...]]) -> int:
    return -(-sum(count for each, count in busy.items() if set(each) <= set(units)) // len(units))
