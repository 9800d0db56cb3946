"""Writes a model of one operator: ``python -m tests.tools.make_operator NAME SHAPE... -o FILE``.

Its operands have these shapes, ``2,8`` and the like, and are inputs of the model; the result has the shape
that they broadcast to. All are float32. The operator has no options.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.tflite_writer import one_operator


def shape(text: str) -> tuple[int, ...]:
    """``2,8`` is (2, 8)."""
    return tuple(int(extent) for extent in text.split(","))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", help="as the file format spells it, e.g. FLOOR_DIV")
    parser.add_argument("shapes", nargs="+", type=shape, metavar="SHAPE")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    arguments.output.write_bytes(one_operator(arguments.name, arguments.shapes))
