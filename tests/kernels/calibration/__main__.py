"""Refits the coefficients of cost models to what simulated cores count.

    python -m tests.kernels.calibration -t cortex-m4 [--kernels s8_add] [--check]
    python -m tests.kernels.calibration -t cortex-m4 MODEL.tflite …

Without models: layers of many sizes, by all variants of all kernels; the core's data file is written. It
takes some minutes for a core. With models: each layer's estimate beside what is counted.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from microfold import target
from microfold.compiler import compile_file
from microfold.kernels.cost.coefficients import FOLDER, LARGEST_ERROR, Core, Row, find_row, read_core
from microfold.options import OPTIMIZE, Options
from microfold.simulate.program import simulator
from microfold.support.tools import run_tool
from microfold.target import Target
from microfold.verification import verify
from tests.kernels.calibration.data_file import write_core
from tests.kernels.calibration.fit import errors_of, keep, refit, stays, waits
from tests.kernels.calibration.layers import layers
from tests.kernels.calibration.measure import Sample, measure

# Of fewer samples, no coefficients are taken.
FEWEST_SAMPLES = 6
# Operators whose rows stay as they were counted by hand, with the error that is measured. Most of their
# kernels are assembly, whose forms no samples have all of, and choices between them were measured in models.
COUNTED = (
    "average_pool2d",
    "batch_matmul",
    "concatenate",
    "conv2d",
    "depthwise_conv2d",
    "fully_connected",
    "max_pool2d",
    "pad",
    "transpose_conv2d",
    "transpose__c_words_4x4",
    *(f"s16_{op}__{core}" for op in ("abs", "leaky_relu", "relu", "requantize") for core in ("dsp", "mve")),
    "s16_logistic__mve",
    "s16_tanh__mve",
)


def by_kernel(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        found[sample.kernel].append(sample)
    return found


def family(kernel: str) -> str:
    """What a kernel has in common with those that it is compared with: type and operator."""
    return kernel.partition("__")[0].replace("_f16w", "").replace("_s4w", "")


def counted(kernel: str) -> bool:
    """Whether its row stays as it is; float16 has no rivals on any core."""
    name = family(kernel)
    dtype, _, operator = name.partition("_")
    return kernel in COUNTED or name in COUNTED or (dtype != "f16" and operator in COUNTED)


def calibrate(core: Core, loaded: Target, shared: Sequence[Sample], alone: Sequence[Sample]) -> Core:
    """The data file with what samples say.

    Args:
        shared, alone: in functions for several layers, and in functions for one.
    """
    rows, single = dict(core.rows), by_kernel(alone)
    empty = Row(core.name, "measured", 0, None, "", {}, {})
    enough = {name: own for name, own in by_kernel(shared).items() if len(own) >= FEWEST_SAMPLES}
    known = {name: find_row(name, loaded.features) or empty for name in enough}
    # Those of one family are compared with each other: what is wrong with one is wrong with all of them.
    refitted = {family(name) for name, own in enough.items() if not stays(known[name], own)}
    for name, own in enough.items():
        row = replace(known[name], core=core.name)
        if row.source == "by hand" and counted(name):
            rows[name] = keep(row, own)
        elif family(name) in refitted:
            rows[name] = refit(row, own, single.get(name, []), core.timing)
        else:
            kept = keep(row, own)
            rows[name] = replace(kept, cycles=waits(kept, own, core.timing))
    ratios = [s.cycles / s.instructions for s in shared]
    ratio = float(np.median(ratios)) if core.timing else 1.0
    version = run_tool([loaded.compiler, "--version"], Path.cwd(), 10.0, "asking for its version").stdout
    made = f"{version.splitlines()[0]}, {Options().compiler_flag} {' '.join(loaded.cpu_flags)}"
    if loaded.timing is not None:
        made += f"; cycles: {loaded.timing.source}"
    return replace(core, rows=rows, provenance=made, cycles_per_instruction=ratio)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-t", "--target", required=True)
    parser.add_argument("--kernels", default="", metavar="PREFIX", help="only those whose names begin so")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a stated error is too small"
    )
    parser.add_argument("--optimize", choices=OPTIMIZE, default="balanced", help="for models")
    parser.add_argument("models", nargs="*", type=Path)
    arguments = parser.parse_args()
    loaded = target.load(arguments.target)
    if arguments.models:
        for path in arguments.models:
            show(path, loaded, Options(optimize=arguments.optimize))
        return 0
    path = FOLDER / f"{arguments.target}.toml"
    core, graphs = read_core(path), layers()
    shared = measure(graphs, loaded, wanted=arguments.kernels)
    if arguments.check:
        return check(core, shared)
    alone = measure(graphs, loaded, alone=True, wanted=arguments.kernels)
    path.write_text(write_core(calibrate(core, loaded, shared, alone)), encoding="utf-8")
    return 0


def check(core: Core, samples: Sequence[Sample]) -> int:
    """How many kernels are further off than their rows state."""
    worse = 0
    for name, own in by_kernel(samples).items():
        row = core.rows.get(name)
        if row is None:
            continue
        error = float(np.median(errors_of(own, row.instructions)))
        stated = max(row.error or 0.0, LARGEST_ERROR)
        mark = "" if error <= stated else "  more than stated"
        worse += bool(mark)
        print(f"{name:44s} {len(own):4d} layers, off by {error:6.1%}{mark}")
    return worse


def show(path: Path, loaded: Target, options: Options) -> None:
    """Every layer of a model: instructions estimated and counted, their ratio."""
    program = compile_file(path, loaded, options)
    calls = verify.input_sets([buffer.type for buffer in program.inputs], 4)[3:]
    with simulator(program) as machine:
        result = machine.run(calls)
    for layer, counted in zip(program.layers, result.layer_instructions[0], strict=True):
        estimated = layer.estimated_instructions or 0
        shapes = f"{layer.node.operands[0].type} -> {layer.outputs[0].type}"
        print(
            f"{layer.kernel.name:36s} {shapes:76s} {counted:10,} {estimated:10,} {estimated / counted:5.2f}"
        )
    total, estimated = result.instructions[0], program.estimated_instructions or 0
    print(f"== {path.stem}: counted {total:,}, estimated {estimated:,}: {estimated / total:.3f}")


if __name__ == "__main__":
    sys.exit(main())
