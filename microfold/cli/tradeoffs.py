"""microfold tradeoffs"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from microfold.cli.common import compile_model, print_json, working
from microfold.cli.default_target import CORE, choose_target
from microfold.cli.options import CodeOptions, Json, Model, TargetName
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError

if TYPE_CHECKING:
    from microfold.report.tradeoffs import Tradeoff


def tradeoffs(
    model: Model,
    code: CodeOptions,
    passes: PassOptions,
    target: TargetName = None,
    as_json: Json = False,
) -> None:
    """Show what less RAM, flash or time costs of the others: levels and budgets of which none is beaten."""
    free = CodeOptions()
    given = (code.optimize, code.flash, code.ram, code.objective)
    if given != (free.optimize, free.flash, free.ram, free.objective):
        raise InputError(
            "tradeoffs tries all levels and many budgets; it was given --optimize, --flash, --ram or "
            "--objective: leave them away, or use `microfold build`"
        )
    target = choose_target(target, CORE, as_json)
    with working(f"compiling {model.name} in many ways", as_json):
        from microfold.report.terminal.lists import print_tradeoffs
        from microfold.target import load

        front = front_of(model, target, code, passes)
    if as_json:
        print_json([asdict(each) for each in front])
    else:
        print_tradeoffs(front, load(target))


def front_of(model: Path, target: str, code: CodeOptions, passes: PassOptions) -> list[Tradeoff]:
    """What nothing beats that was tried."""
    from microfold.options import Options
    from microfold.program import Program
    from microfold.report.tradeoffs import tradeoffs_front

    def build(options: Options) -> Program:
        chosen = replace(code, optimize=options.optimize, flash=options.flash, ram=options.ram)
        return compile_model(model, target, chosen, passes, quiet=True, explain=False)

    return tradeoffs_front(code.options(), build)
