"""microfold explain"""

from __future__ import annotations

from microfold.cli.common import prepare_model, print_json, working
from microfold.cli.default_target import CORE, choose_target
from microfold.cli.options import CodeOptions, Json, Model, TargetName
from microfold.cli.pass_options import PassOptions


def explain(
    model: Model,
    code: CodeOptions,
    passes: PassOptions,
    target: TargetName = None,
    as_json: Json = False,
) -> None:
    """Explain the decision of a build: proofs, limits, alternatives."""
    target = choose_target(target, CORE, as_json)
    prepared = prepare_model(model, target, code, passes, as_json)
    with working(f"looking for alternatives to the kernels of {model.name}", as_json):
        from microfold.reporting.explanation import explain as find_explanation
        from microfold.reporting.terminal.explain import print_explanation

        found = find_explanation(prepared)
    if as_json:
        print_json(found)
    else:
        print_explanation(found)
