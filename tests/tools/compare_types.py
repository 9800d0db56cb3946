"""Element types that a wheel runs an operator in, and microfold refuses or computes otherwise.

    python -m tests.tools.compare_types [OPERATOR...]

draws a model of each operator in each element type, as `tests/frontend/drawn_types.py` does, and hands it to
TFLM, to LiteRT's reference kernels, to LiteRT's default kernels, and to the compiler. It prints what a wheel
runs and the compiler refuses, with the reason, and results that differ; differences are for a reader to
judge: of two references one decides. Wheels run in a process of their own, since some models end theirs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import numpy as np
import tflite

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.frontend.drawn_types import OPERATORS, draw_model

DTYPES = ("f4", "f2", "i1", "u1", "i2", "i4", "u4", "i8", "u8", "?")
SECONDS = 20  # that a wheel may take
Arrays = list[oracle.Array]


def _runs(data: bytes, inputs: Arrays) -> dict[str, Callable[[], list[oracle.Tensors]]]:
    graph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
    outputs = [int(n) for n in graph.OutputsAsNumpy()]
    return {
        "TFLM": lambda: oracle.tflm(data, [inputs], outputs),
        "LiteRT reference": lambda: oracle.litert(data, [inputs], outputs),
        "LiteRT": lambda: oracle.litert(data, [inputs], outputs, reference=False),
    }


def _send(run: Callable[[], list[oracle.Tensors]], to: Connection) -> None:
    # Wheels say there themselves why they cannot.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        (tensors,) = run()
    except oracle.OracleError:
        to.send(None)
    else:
        to.send(list(tensors.values()))


def _apart(run: Callable[[], list[oracle.Tensors]]) -> Arrays | None:
    """What a wheel gives; None if it cannot run the model, or ends its process."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(run, there))
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(SECONDS) else None
    except EOFError:
        return None
    finally:
        process.kill()
        process.join()


def compare(name: str, dtype: str) -> str:
    """What is to say of an operator in an element type; empty if there is nothing."""
    try:
        data, inputs = draw_model(name, dtype, 1)
    except (KeyError, OverflowError, ValueError) as error:
        return f"cannot be drawn: {error}"
    theirs = {wheel: _apart(run) for wheel, run in _runs(data, inputs).items()}
    running = {wheel: arrays for wheel, arrays in theirs.items() if arrays is not None}
    if not running:
        return ""
    try:
        graph = import_model(data)
        compile_graph(graph, target.load("cortex-m0plus"))
    except UnsupportedModelError as error:
        return f"{', '.join(running)}; refused: {error.problems[0].reason}"
    ours = [np.asarray(array) for array in Interpreter(graph).run(*inputs)]
    return "; ".join(
        f"{wheel} {fault}" for wheel, arrays in running.items() if (fault := _fault(ours, arrays))
    )


def _fault(ours: Sequence[oracle.Array], theirs: Sequence[oracle.Array]) -> str:
    faults = [oracle.difference(a, np.asarray(b, a.dtype)) for a, b in zip(ours, theirs, strict=True)]
    return next(filter(None, faults), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("operators", nargs="*", help="names; all if there are none")
    wanted = parser.parse_args().operators
    for name in OPERATORS:
        for dtype in DTYPES if not wanted or name.split()[0] in wanted else ():
            found = compare(name, dtype)
            if found:
                print(f"{name} {np.dtype(dtype).name}: {found}", flush=True)


if __name__ == "__main__":
    main()
