"""Digests of the files of random graphs: ``python -m tests.tools.print_builds COUNT [SEED]``.

What it prints is to be the same in every process. SEED also says how much memory is taken first, and in which
pieces, so that objects lie elsewhere.
"""

from __future__ import annotations

import hashlib
import random
import sys

from hypothesis import HealthCheck, given, settings

from microfold.codegen.emit import emit
from microfold.compiler import compile_graph
from microfold.errors import MicrofoldError
from microfold.ir.graph import Graph
from microfold.ir.text import to_text
from microfold.options import OPTIMIZE, Options
from microfold.target import load
from tests.random_graphs import graphs

TARGETS = ("cortex-m4", "cortex-m0plus", "cortex-m55")


def files_text(graph: Graph, target: str = "cortex-m4", optimize: str = "balanced") -> str:
    """All files of a build, or why there is none."""
    try:
        files = emit(compile_graph(graph, load(target), Options(optimize=optimize)))
    except MicrofoldError as error:
        return str(error)
    return "".join(f"==== {name}\n{text}" for name, text in files.items())


def main(count: int, seed: int) -> None:
    numbers = random.Random(seed)
    junk = [bytearray(numbers.randrange(1, 3000)) for _ in range(numbers.randrange(1, 20000))]
    del junk[:: numbers.randrange(2, 5)]
    built = 0

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(graphs())
    def build(graph: Graph) -> None:
        nonlocal built
        target, optimize = TARGETS[built % 3], OPTIMIZE[built // 3 % 3]
        built += 1
        junk.append(bytearray(numbers.randrange(1, 3000)))
        text = to_text(graph) + files_text(graph, target, optimize)
        print(hashlib.sha256(text.encode()).hexdigest()[:16])

    build()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
