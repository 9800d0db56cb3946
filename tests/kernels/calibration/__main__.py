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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_file
from microfold.kernels.cost.coefficients import FOLDER, LARGEST_ERROR, Core, CostRow, find_row, read_core
from microfold.kernels.cost.terms import WHOLE
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.loading import load_all_kernels
from microfold.options import OPTIMIZE, Options
from microfold.simulate.program import simulator
from microfold.support.tools import run_tool
from microfold.target import Target
from microfold.verification import verify
from tests.kernels.calibration import code
from tests.kernels.calibration.data_file import write_core
from tests.kernels.calibration.fit import FEWEST_SAMPLES, errors_of, keep, refit, stays
from tests.kernels.calibration.layers import layers
from tests.kernels.calibration.measure import Sample, cycle_model, measure, without_halves


def by_kernel(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        found[sample.kernel].append(sample)
    return found


def believed(row: CostRow, name: str, samples: Sequence[Sample]) -> Mapping[str, float]:
    """Instructions of parts as a kernel guesses them, or as its row has had them."""
    (kernel,) = (each for each in KERNELS if each.name == name)
    if type(kernel).default_coefficient is not Kernel.default_coefficient:
        return {term: kernel.default_coefficient(term) for sample in samples for term in sample.terms}
    return row.instructions


def plain_beside_vectors(name: str, loaded: Target) -> bool:
    """Whether a kernel has plain loops, where others have vector instructions for the same layers.

    Compilers make vectors of some of its loops, if what is around them allows that. No choice may rest on it:
    it is taken to be as slow as without.
    """
    layers, _, variant = name.partition("__")
    vectors = f"{layers}__mve"
    return (
        "mve" in loaded.features
        and variant == "c"
        and any(kernel.name.startswith(vectors) for kernel in KERNELS)
    )


def is_plain(sample: Sample) -> bool:
    """No compiler makes vectors of its loops."""
    return not any(WHOLE in term and count for term, count in sample.terms.items())


def as_plain(row: CostRow, samples: Sequence[Sample]) -> CostRow:
    """The row with parts that compilers may make vectors of as slow as those that they may not."""

    def extended(known: Mapping[str, float]) -> Mapping[str, float]:
        more = {term for sample in samples for term in sample.terms if WHOLE in term}
        return {**known, **{term: known.get(term.replace(WHOLE, ""), 0.0) for term in sorted(more)}}

    alone, alone_cycles = (extended(known) if known else known for known in (row.alone, row.alone_cycles))
    return replace(
        row,
        instructions=extended(row.instructions),
        cycles=extended(row.cycles),
        alone=alone,
        alone_cycles=alone_cycles,
    )


def _like(row: CostRow | None, core: Core) -> CostRow:
    """What is believed of a kernel that was not measured on the core: another core's instructions."""
    if row is None:
        return CostRow(core.name, "measured", 0, None, None, "", {}, {})
    return replace(row, core=core.name, cycles={})


def _of_one_code(names: Iterable[str]) -> Iterable[list[str]]:
    """Kernels, those together that differ in no more than weights of float16.

    Parts that both have take the same. If each had its own fit, chance would tell which of two is faster.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        found[without_halves(name)].append(name)
    return found.values()


def _of_terms(row: CostRow, known: CostRow | None, samples: Sequence[Sample]) -> CostRow:
    """The row with the terms of one of the kernels that it is of."""
    terms = {term for sample in samples for term in sample.terms} | set(known.instructions if known else ())

    def own(values: Mapping[str, float]) -> Mapping[str, float]:
        return {term: value for term, value in values.items() if term in terms}

    return replace(
        row,
        instructions=own(row.instructions),
        cycles=own(row.cycles),
        alone=own(row.alone),
        alone_cycles=own(row.alone_cycles),
    )


def calibrate(
    core: Core, loaded: Target, shared: Sequence[Sample], alone: Sequence[Sample], wanted: str = ""
) -> Core:
    """The data file with what samples say.

    Args:
        shared, alone: in functions for all layers that can share them, and in functions for one.
        wanted: these are only of such kernels, see `measure`.
    """
    rows, several_of, single = dict(core.rows), by_kernel(shared), by_kernel(alone)
    for names in _of_one_code(several_of):
        # What is believed is known of the one that does most.
        name = max(names, key=len)
        own = [sample for each in names for sample in several_of[each]]
        several = [sample for sample in own if sample.callers > 1]
        one = [sample for sample in own if sample.callers == 1]
        one += [sample for each in names for sample in single.get(each, [])]
        if len(several) < FEWEST_SAMPLES:
            # Its functions are hardly ever those of several layers.
            several, one = [*several, *one], []
        if len(several) >= FEWEST_SAMPLES:
            row = core.rows.get(name) or _like(find_row(name, loaded.features), core)
            plain = plain_beside_vectors(name, loaded)
            if plain:
                several, one = (list(filter(is_plain, samples)) for samples in (several, one))
            if stays(row, [*several, *one]):
                row = keep(row, several, one)
            else:
                row = refit(row, several, one, believed(row, name, several))
            if plain:
                row = as_plain(row, own)
            rows |= {each: _of_terms(row, rows.get(each), several_of[each]) for each in names}
    ratio = core.cycles_per_instruction
    if not wanted:
        ratio = float(np.median([sample.cycles / sample.instructions for sample in shared]))
    version = run_tool([loaded.compiler, "--version"], Path.cwd(), 10.0, "asking for its version").stdout
    made = f"{version.splitlines()[0]}, {Options().compiler_flag} {' '.join(loaded.cpu_flags)}"
    return replace(
        core,
        rows=rows,
        provenance=made,
        cycles_source=cycle_model(loaded).source,
        cycles_per_instruction=ratio,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-t", "--target", required=True)
    parser.add_argument(
        "--kernels", default="", metavar="WHICH", help="only those of a family, or whose names begin so"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a stated error is too small"
    )
    parser.add_argument(
        "--code",
        action="store_true",
        help="code sizes instead: nothing is run; with models: estimated and measured, at every level",
    )
    parser.add_argument("--like", default="", metavar="CORE", help="with --code: whose terms may be nearer")
    parser.add_argument("--optimize", choices=OPTIMIZE, default="balanced", help="for models")
    parser.add_argument("models", nargs="*", type=Path)
    arguments = parser.parse_args()
    load_all_kernels()
    loaded = target.load(arguments.target)
    if arguments.code:
        code.run(loaded, arguments.models, arguments.like)
        return 0
    if arguments.models:
        for path in arguments.models:
            show(path, loaded, Options(optimize=arguments.optimize))
        return 0
    path = FOLDER / f"{arguments.target}.toml"
    core = read_core(path) if path.exists() else Core(path.stem, loaded.features, "", "", 1.0, {})
    graphs = layers()
    shared = measure(graphs, loaded, wanted=arguments.kernels)
    if arguments.check:
        return check(core, shared)
    alone = measure(graphs, loaded, alone=True, wanted=arguments.kernels)
    path.write_text(write_core(calibrate(core, loaded, shared, alone, arguments.kernels)), encoding="utf-8")
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
