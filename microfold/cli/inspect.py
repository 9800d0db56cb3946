"""microfold inspect"""

from __future__ import annotations

from microfold.cli.common import load_custom, print_json, working
from microfold.cli.options import Custom, Json, Signature, TfliteModel


def inspect(
    model: TfliteModel, custom: Custom = None, signature: Signature = None, as_json: Json = False
) -> None:
    """List operators, tensors, quantisation, MACs and problems."""
    with working(f"reading {model.name}", as_json):
        from microfold.reporting.inspection import inspect_model
        from microfold.reporting.terminal.lists import print_inspection

        load_custom(custom)
        inspection = inspect_model(model, signature)
    if as_json:
        print_json(inspection)
    else:
        print_inspection(inspection)
