"""Selection of the choices to measure, and of the measured choices that builds use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from microfold.kernels.selection.objective import SelectionFigures, objective_of
from microfold.options import Options
from microfold.passes.choices import PassChoice, Trace, trace_of, trace_text
from microfold.tune.records import ProgramRecord
from microfold.tune.space import MOST_OF_BEST


class Plan(Struct, frozen=True):
    """Choices with better measurements than the choices by estimates.

    Attributes:
        trace: the choices.
        cycles: measured cycles of whole runs, by `identity.code_digest`.
    """

    trace: Trace
    cycles: Mapping[str, int]


def alternatives(choices: Iterable[PassChoice], most: int) -> list[Trace]:
    """Return traces to measure, each with one answer that estimates do not choose, the best estimates first.

    Args:
        most: maximum number of traces.
    """
    found: list[tuple[float, str, str]] = []
    for choice in choices:
        best = max(choice.estimates[choice.taken], 1.0)
        ratios = {option: cost / best for option, cost in choice.estimates.items() if option != choice.taken}
        found += [(ratio, choice.name, option) for option, ratio in ratios.items() if ratio <= MOST_OF_BEST]
    return [{name: option} for _, name, option in sorted(found)[:most]]


def best_plan(records: Sequence[ProgramRecord], options: Options) -> Plan:
    """Return the fastest choices that are profitable compared with those by estimates.

    Args:
        records: records of one program.
    """
    cycles = {record.code: record.cycles for record in records}
    return Plan(next((trace for trace, _ in better(records, options)), {}), cycles)


def better(records: Sequence[ProgramRecord], options: Options) -> list[tuple[Trace, ProgramRecord]]:
    """Return the traces that are profitable compared with the empty one, and their records, fastest first."""
    least = least_of(records)
    plain = least.get(trace_text({}))
    paying = [each for each in least.values() if plain is not None and _pays(plain, each, options)]
    return [(trace_of(each.trace), each) for each in sorted(paying, key=lambda e: (e.cycles, e.trace))]


def least_of(records: Sequence[ProgramRecord]) -> Mapping[str, ProgramRecord]:
    """Return the fastest program of each trace."""
    found: dict[str, ProgramRecord] = {}
    for record in sorted(records, key=lambda each: (each.cycles, each.code)):
        found.setdefault(record.trace, record)
    return found


def _pays(before: ProgramRecord, after: ProgramRecord, options: Options) -> bool:
    if after.cycles >= before.cycles:
        return False
    now, then = (SelectionFigures(each.cycles, each.flash, each.ram) for each in (before, after))
    objective = objective_of(options)
    return objective.value(then, now) < objective.value(now, now)
