"""microfold passes"""

from __future__ import annotations

from microfold.cli.common import print_json
from microfold.cli.options import Json


def passes(as_json: Json = False) -> None:
    """List all passes with level, position, options and purpose."""
    from microfold.cli.passes_text import describe_options
    from microfold.passes.kinds import Sequential
    from microfold.pipeline import default_pipeline
    from microfold.report.terminal.lists import print_passes
    from microfold.transform import available, summary

    pipeline = default_pipeline()
    places: dict[str, list[int]] = {}
    for place, step in enumerate(pipeline.passes, 1):
        for name in {step.name} | (step.names() if isinstance(step, Sequential) else set()):
            places.setdefault(name, []).append(place)
    last = [len(pipeline.passes) + 1]
    found = sorted(available().values(), key=lambda item: (places.get(item.name, last), item.name))
    rows = [
        {
            "name": item.name,
            "opt_level": item.opt_level,
            "mandatory": item.mandatory,
            "places": places.get(item.name, []),
            "options": describe_options(item),
            "summary": summary(item.name),
        }
        for item in found
    ]
    if as_json:
        print_json(rows)
    else:
        print_passes(rows)
