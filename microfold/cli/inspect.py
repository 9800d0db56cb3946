"""microfold inspect"""

from __future__ import annotations

from microfold.cli.common import print_json, working
from microfold.cli.options import Json, TfliteModel


def inspect(model: TfliteModel, as_json: Json = False) -> None:
    """Show operators, tensors, quantisation and MACs, and what is not supported."""
    with working(f"reading {model.name}", as_json):
        from microfold.report.inspection import inspect_model
        from microfold.report.terminal import print_inspection

        inspection = inspect_model(model)
    if as_json:
        print_json(inspection)
    else:
        print_inspection(inspection)
