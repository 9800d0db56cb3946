"""microfold tradeoffs"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from microfold.cli.common import measured_costs, prepared, print_json, progress_bar
from microfold.cli.default_target import CORE, choose_target
from microfold.cli.options import CodeOptions, Json, Model, TargetName
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError

if TYPE_CHECKING:
    from microfold.reporting.schema import Tradeoff
    from microfold.reporting.tradeoffs import Progress


def tradeoffs(
    model: Model,
    code: CodeOptions,
    passes: PassOptions,
    target: TargetName = None,
    as_json: Json = False,
) -> None:
    """List the Pareto-optimal builds: RAM, flash, cycles and options."""
    free = CodeOptions()
    given = (code.optimize, code.flash, code.ram, code.objective)
    if given != (free.optimize, free.flash, free.ram, free.objective):
        raise InputError(
            "tradeoffs tries all levels and many limits; it cannot be combined with --optimize, --flash, "
            "--ram or --objective: remove them, or use `microfold build`"
        )
    target = choose_target(target, CORE, as_json)
    with progress_bar(f"selecting kernels of {model.name} for many limits", as_json) as progress:
        from microfold.reporting.terminal.lists import print_tradeoffs
        from microfold.target import load

        front = front_of(model, target, code, passes, progress)
    if as_json:
        print_json(front)
    else:
        print_tradeoffs(front, load(target))


def front_of(
    model: Path, target: str, code: CodeOptions, passes: PassOptions, progress: Progress
) -> list[Tradeoff]:
    """Return the Pareto-optimal builds of the model in a file."""
    from microfold.reporting.tradeoffs import tradeoffs as find_tradeoffs

    with prepared(model, target, code, passes) as (graph, _, core, options, context):
        costs = measured_costs(code, core, options)
        return find_tradeoffs(graph, core, options, context, costs, progress)
