"""microfold passes"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from microfold.cli.common import load_custom, print_json
from microfold.cli.options import Custom, Json

if TYPE_CHECKING:
    from microfold.passes.decorators import PassFactory
    from microfold.passes.kinds import Pass


def passes(
    section: Annotated[
        str,
        typer.Option("--section", help="List only the passes of this section, in the order of execution."),
    ] = "",
    custom: Custom = None,
    as_json: Json = False,
) -> None:
    """List all passes and sections, with levels, options and purpose."""
    from microfold.cli.passes_text import check_section, describe_options
    from microfold.passes.kinds import Sequential
    from microfold.passes.registry import registered_passes
    from microfold.pipeline import default_pipeline
    from microfold.reporting.terminal.lists import print_passes

    load_custom(custom)
    sections = default_pipeline().sections
    check_section(section)
    places: dict[str, list[int]] = {}
    firsts: dict[str, int] = {}
    sections_of: dict[str, dict[str, None]] = {}
    steps = [(name, step) for name, each in sections.items() for step in each.passes]
    for place, (name, step) in enumerate(steps, 1):
        for each in {step.name} | (step.names() if isinstance(step, Sequential) else set()):
            places.setdefault(each, []).append(place)
            sections_of.setdefault(each, {})[name] = None
            if section in ("", name):
                firsts.setdefault(each, place)
    last = len(steps) + 1
    found = sorted(registered_passes().values(), key=lambda item: (firsts.get(item.name, last), item.name))
    rows = [
        {
            "name": item.name,
            "sections": [*sections_of.get(item.name, ())],
            "opt_level": item.opt_level,
            "mandatory": item.mandatory,
            "places": places.get(item.name, []),
            "options": describe_options(item),
            "summary": _summary(item),
        }
        for item in found
        if not section or section in sections_of.get(item.name, ())
    ]
    if as_json:
        print_json(rows)
    else:
        print_passes(rows, [each for each in sections.values() if section in ("", each.name)])


def _summary(item: Pass | PassFactory[Any]) -> str:
    """Return the first line of the docstring: of the module of a built-in pass, or of the user's own code."""
    from microfold.transform import available, summary

    if item.name in available():
        return summary(item.name)
    code = getattr(item, "form", None) or getattr(item, "transform", None)
    return (code.__doc__ or "").strip().partition("\n")[0]
