"""Writes a trace of some layers, which `tests/simulate/pipeline/held_trace.py` reads.

    python -m tests.tools.hold_trace -t cortex-m7 [-O speed] MODEL.tflite INDEX ... > TRACE.txt

runs the model on the target's simulated core once, on random inputs, and prints what ran in these layers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from microfold import target
from microfold.compiler import compile_file
from microfold.options import OPTIMIZE, Options
from microfold.simulate.pipeline.disassembly import disassemble
from microfold.simulate.program import simulator
from tests.oracle import random_inputs
from tests.simulate.pipeline.held_trace import written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("layers", nargs="+", type=int, metavar="INDEX")
    parser.add_argument("-t", "--target", default="cortex-m7")
    parser.add_argument("-O", "--optimize", choices=OPTIMIZE, default="balanced")
    options = parser.parse_args()
    core, level = target.load(options.target), options.optimize
    program = compile_file(options.model, core, Options(optimize=level))
    with simulator(program) as simulation:
        firmware = simulation.firmware(hooked=True)
        types = [(buffer.type.shape, buffer.type.dtype.numpy) for buffer in program.inputs]
        (run,) = firmware.count([random_inputs(types, 0)], edges=True)
        lines = disassemble(firmware.elf).lines
    chosen = {f"{options.model.stem} {level} {index}": run[index] for index in options.layers}
    print("\n".join(written(chosen, lines)))


if __name__ == "__main__":
    main()
