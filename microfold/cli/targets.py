"""microfold targets"""

from __future__ import annotations

from microfold.cli.common import print_json
from microfold.cli.options import Json


def targets(as_json: Json = False) -> None:
    """List the built-in targets."""
    from microfold import target as descriptions
    from microfold.reporting.terminal.targets import print_targets

    found = [descriptions.load(name) for name in descriptions.available()]
    if as_json:
        print_json([
            {"name": t.name, "description": t.description, "features": sorted(t.features), "board": t.board}
            for t in found
        ])  # fmt: skip
    else:
        print_targets(found)
