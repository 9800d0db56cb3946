"""Text output of `microfold explain`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from microfold.reporting.explanation import LARGEST, Explanation, RestrictedChoice, Share
from microfold.reporting.tables import Table, TableColumn
from microfold.reporting.terminal.figures import console, cycles_error


def print_explanation(found: Explanation) -> None:
    """Print the decision of a build, a subject on each line."""
    streamed = f", {found.streamed} streamed" if found.streamed else ""
    title = f"{found.model} for {found.target}: {found.layers} layers{streamed}"
    table = Table(title, (TableColumn(""), TableColumn("")))
    for subject, text in _lines(found):
        table.add(subject, text)
    console.show(table, header=False)


def _lines(found: Explanation) -> Iterator[tuple[str, str]]:
    yield "objective", _objective(found)
    yield "figures", _figures(found)
    yield "proof", _proof(found)
    for use in found.limits:
        binding = "binding: without it, another build would be better" if use.binding else "not binding"
        yield f"limit of {use.memory}", f"{use.used:,} of {use.limit:,} B used; {binding}"
    yield "arena set by", _peak(found)
    yield "time spent in", _shares(found.time, "cycles")
    yield "flash spent on", _shares(found.flash, "B")
    for memory, each in zip(["RAM", "flash"], found.less, strict=True):
        yield f"1 % less {memory}", _alternative(each)
    for each in found.others:
        yield "other kernel", _alternative(each)
    yield "streaming", f"{'yes' if found.streamed else 'no'}: {found.streaming}"
    for subject, counts in (("fused by", found.passes.fused), ("rewritten by", found.passes.rewritten)):
        yield subject, ", ".join(f"{name} ({count})" for name, count in counts) or "no pass"
    declined = [
        reason if count == 1 else f"{reason} ({count} times)" for reason, count in found.passes.declined
    ]
    more = (
        f"; {len(declined) - LARGEST} more: `microfold opt --explain PASS`" if len(declined) > LARGEST else ""
    )
    yield "not fused", ("; ".join(declined[:LARGEST]) or "no pass declined") + more


def _objective(found: Explanation) -> str:
    prices, unit = found.objective, found.reference
    hundred = f"100 % is {unit.cycles:,.0f} cycles, {unit.flash:,} B flash, {unit.arena:,} B RAM"
    if math.isinf(prices.cycles):
        return f"{found.optimize}: least cycles; flash and RAM break ties. {hundred}"
    named = {"cycles": prices.cycles, "flash": prices.flash, "RAM": prices.arena}
    text = ", ".join(f"{price:g} x % {name}" for name, price in named.items() if price)
    return f"least sum of {text}; {hundred}"


def _figures(found: Explanation) -> str:
    figures = found.figures
    measured = f"; {found.measured} layers measured" if found.measured else ""
    timing = f"timing model {cycles_error(found.cycles_error)}"
    cycles = f"{figures.cycles:,.0f} cycles (estimated, {timing}{measured})"
    code = figures.flash - found.constants
    flash = f"{figures.flash:,} B flash ({found.constants:,} constants, {code:,} code estimated)"
    ram = f"{figures.arena + found.state:,} B RAM ({figures.arena:,} arena, {found.state:,} state)"
    return f"{cycles}, {flash}, {ram}"


def _proof(found: Explanation) -> str:
    kernels = "proved: no kernels are better" if found.proved else "not proved: better kernels may exist"
    scope = "this graph after passes and this order of calls"
    if found.streamed:
        scope = "this streaming partition, which a search has found"
    return f"{kernels} by these estimates, for {scope}"


def _peak(found: Explanation) -> str:
    peak = found.peak
    if peak is None:
        return "not part of selection: a layer runs others"
    names = ", ".join(peak.layers[:LARGEST])
    if len(peak.layers) > LARGEST:
        names += f" and {len(peak.layers) - LARGEST} more"
    how = "together need at least" if peak.together else "needs" if len(peak.layers) == 1 else "each need"
    least = "proved minimal for these kernels"
    if peak.planned > peak.bound:
        least = f"lower bound {peak.bound:,}"
    needs = f"{how} {peak.needs:,} B; other calls at most {peak.others:,}"
    return f"{names} ({needs}); {peak.planned:,} B planned, {least}"


def _shares(shares: Sequence[Share], unit: str) -> str:
    return ", ".join(f"{each.name} {each.amount:,.0f} {unit} ({each.part:.0%})" for each in shares)


def _alternative(each: RestrictedChoice) -> str:
    if each.change is None or each.growth is None:
        reason = f": impossible for this graph: {each.impossible}" if each.impossible else ""
        return f"{each.restriction}{reason}"
    change = each.change
    changes = f"{change.cycles:+,.0f} cycles, {change.flash:+,} B flash, {change.arena:+,} B RAM"
    kernel = f" -> {each.kernel}" if each.kernel else " -> streaming" if each.streamed else ""
    proof = "proved optimal" if each.proved else "not proved optimal"
    return f"{each.restriction}{kernel}: {changes}; objective {each.growth:+.1%} ({proof})"
