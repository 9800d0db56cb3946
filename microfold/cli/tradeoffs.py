"""microfold tradeoffs"""

from __future__ import annotations

from dataclasses import asdict, replace

from microfold.cli.common import compile_model, print_json, working
from microfold.cli.options import CodeOptions, Json, Model, TargetName
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError


def tradeoffs(
    model: Model,
    code: CodeOptions,
    passes: PassOptions,
    target: TargetName = "cortex-m4",
    as_json: Json = False,
) -> None:
    """Show what less RAM, flash or time costs of the others: levels and budgets of which none is beaten."""
    free = CodeOptions()
    if (code.optimize, code.flash, code.ram) != (free.optimize, free.flash, free.ram):
        raise InputError(
            "tradeoffs tries all levels and many budgets; it was given --optimize, --flash or --ram: "
            "leave them away, or use `microfold build`"
        )
    with working(f"compiling {model.name} in many ways", as_json):
        from microfold.options import Options
        from microfold.program import Program
        from microfold.report.terminal.lists import print_tradeoffs
        from microfold.report.tradeoffs import tradeoffs as try_all
        from microfold.report.what_if import pareto_front

        def build(options: Options) -> Program:
            chosen = replace(code, optimize=options.optimize, flash=options.flash, ram=options.ram)
            return compile_model(model, target, chosen, passes, quiet=True, explain=False)

        # Of equal ones, the first has the fewest options.
        tried = [*try_all(code.options(), build)]
        found = {(t.ram, t.flash, t.estimated_instructions): t for t in reversed(tried)}
        front = sorted(pareto_front([*found.values()]), key=lambda t: (t.ram, t.flash))
    rows = [asdict(each) for each in front]
    if as_json:
        print_json(rows)
    else:
        print_tradeoffs(rows)
