"""Reports of builds, benchmarks and verifications; `schema` defines the fields of a build report."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, to_builtins
from msgspec.structs import asdict, replace
from msgspec.structs import replace as replace_fields

from microfold import __version__
from microfold.analysis.deviation import Deviation, measure_deviation
from microfold.analysis.interval import channel_count
from microfold.analysis.product_sum import Accumulator, has_wide_sums
from microfold.analysis.pruning_proof import PruningProof
from microfold.analysis.ranges import Ranges, analyze
from microfold.codegen.fetching import fetched_bytes
from microfold.codegen.provenance import API_VERSION
from microfold.codegen.requirements import needs
from microfold.codegen.stack_size import stack_bound
from microfold.external.kernel import ExternalKernel
from microfold.ir.types import DType, TensorType
from microfold.kernels.cost.coefficients import closest
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.kernels.selection.candidates import Candidate
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.plan.regions import Regions
from microfold.program import Buffer, Layer, Program
from microfold.reporting import schema
from microfold.reporting.rows import rows_report
from microfold.reporting.schema import (
    BuildReport,
    OutputDeviation,
    ReportedAccumulators,
    ReportedChange,
    ReportedFlash,
    ReportedImage,
    ReportedLibrary,
    ReportedMemory,
    ReportedOrigin,
    ReportedPasses,
    ReportedPort,
    ReportedPrunedValue,
    ReportedPruning,
    ReportedRam,
    ReportedRejection,
    ReportedRelaxations,
    ReportedRemoval,
    ReportedRowBuffer,
    ReportedSettings,
    ReportedSliding,
    ReportedTensor,
)
from microfold.reporting.structure import blocks, edges
from microfold.verification.measure import Measurement

if TYPE_CHECKING:
    from microfold.simulate.run import Cycles, SimulationResult
    from microfold.verification.verify import Verification

# Number of input sets for the comparison of relaxed numerics with the imported graph.
RELAXED_RUNS = 8


def build_report(
    program: Program, measurement: Measurement | None, build_id: str | None = None
) -> BuildReport:
    """Return the report of a compilation; sizes are in bytes, or None if no compiler could measure them.

    Instructions and cycles are estimates of the cost model. They are None for external code, or if the target
    has no cycle model. The report is deterministic for one compiler: it has no dates, and no paths except
    paths in the options.

    Args:
        build_id: C constant in the files of the build; None if no files are written.
    """
    cycles, model = program.estimated_cycles, program.target.cycle_model
    ranges = _with_inner_sums(program)
    return BuildReport(
        microfold_version=__version__,
        api_version=API_VERSION,
        build_id=build_id,
        origin=ReportedOrigin(**asdict(program.origin)) if program.origin is not None else None,
        model=program.name,
        target=program.target.name,
        options=ReportedSettings(**_settings(program.options)),
        passes=ReportedPasses(**_settings(program.context, without=_NOT_CHOSEN)),
        macs=program.macs,
        estimated_instructions=program.estimated_instructions,
        instructions=None,
        estimated_cycles=cycles,
        cycles_source=closest(program.target.features).cycles_source if cycles is not None else None,
        cycles_error=model.error if model is not None and cycles is not None else None,
        kernels_proved=program.kernels_proved,
        measured_on=program.measured_on or None,
        measured_run=program.measured_run,
        measured_choices=_measured_choices(program),
        ram=ReportedRam(
            arena=program.arena.size,
            arena_bound=program.arena.bound,
            parts=tuple(program.parts),
            state=program.state_size,
            stack=measurement.stack if measurement else None,
        ),
        flash=ReportedFlash(
            weights=program.weight_bytes,
            code=measurement.code if measurement else None,
            library=measurement.library if measurement else None,
            padding=measurement.padding if measurement else None,
        ),
        inputs=tuple(_port(buffer) for buffer in program.inputs),
        outputs=tuple(
            _port(buffer, labels) for buffer, labels in zip_longest(program.outputs, program.labels)
        ),
        labels_ignored=program.labels_ignored or None,
        needs=tuple(needs(program, stack_bound(program, measurement.stack if measurement else None))),
        layers=tuple(_layer(program, layer, ranges.accumulators.get(layer.node)) for layer in program.layers),
        edges=edges(program),
        blocks=blocks(program),
        stream=rows_report(program),
        sliding=_sliding(program),
        libraries=tuple(
            ReportedLibrary(library.name, tuple(library.headers), tuple(functions))
            for library, functions in program.libraries.items()
        ),
        accumulators=_overflow_proof(program, ranges),
        pruned=tuple(map(_pruned, program.pruned)),
        relaxed=_relaxed(program),
        memories=memories_report(program.regions) if program.regions is not None else (),
    )


def _layer(program: Program, layer: Layer, accumulator: Accumulator | None) -> schema.ReportedLayer:
    return schema.ReportedLayer(
        name=layer.name,
        tensor=layer.label,
        op=layer.operators[0],
        fused=tuple(layer.operators[1:]),
        kernel=layer.kernel.name,
        candidates=tuple(
            schema.ReportedCandidate(c.kernel.name, round(c.instructions))
            for c in layer.candidates
            if c.instructions is not None
        ),
        refused=_refusals(layer.candidates),
        macs=layer.macs,
        estimated_instructions=layer.estimated_instructions,
        instructions=None,
        estimated_cycles=layer.estimated_cycles,
        measured_cycles=layer.measured_cycles,
        scratch=layer.call.scratch,
        fetched=fetched_bytes(program, layer),
        weights=sum(c.array.nbytes for each in layer.all_layers for c in each.call.constants.values()),
        output=ReportedTensor(**_type(layer.outputs[0].type)),
        output_offset=layer.outputs[0].offset,
        accumulator=_sums(layer, accumulator),
        accumulator_bits=_bits(accumulator),
    )


def memories_report(regions: Regions) -> tuple[ReportedMemory, ...]:
    """Return the usage of the target's memories."""
    plan = regions.plan
    return tuple(
        ReportedMemory(
            name=memory.name,
            size=memory.size,
            cycles=memory.cycles,
            use=memory.use,  # type: ignore[arg-type]  # `read_memories` checks it
            context=plan.used(memory, "data"),
            constants=plan.used(memory, "constants"),
            loaded=plan.used(memory, "load"),
            used=plan.fill(memory),
            prefetch=memory.prefetch,
        )
        for memory in plan.memories
    )


# Fields of the pass context that follow from the target and the options, or only observe.
_NOT_CHOSEN = frozenset({
    "instruments", "numerics", "unroll", "channel_block", "half_precision", "externals", "sink", "pass_name",
    "running", "save_ram", "save_flash", "node_cost", "node_scratch", "arenas", "choices",
    "pipeline"
})  # fmt: skip


def _settings(chosen: Options | PassContext, without: Collection[str] = ()) -> dict[str, Any]:
    """Return all fields by name, with tuples for sets and lists."""
    return {name: _plain(value) for name, value in asdict(chosen).items() if name not in without}


def _plain(value: Any) -> Any:
    if isinstance(value, Set):
        return tuple(sorted(value))  # type: ignore[reportUnknownVariableType]
    return tuple(value) if isinstance(value, list) else value  # type: ignore[reportUnknownVariableType]


def _bits(accumulator: Accumulator | None) -> int | None:
    """Return the bits of the signed integer that holds every partial sum in any order of summation."""
    return int(accumulator.partial.max()).bit_length() + 1 if accumulator is not None else None


def _refusals(considered: Sequence[Candidate]) -> tuple[ReportedRejection, ...]:
    """Return the reasons for rejection, each with its kernels."""
    found: dict[str, list[str]] = {}
    for candidate in considered:
        if candidate.reason is not None:
            found.setdefault(candidate.reason, []).append(candidate.kernel.name)
    return tuple(ReportedRejection(reason, tuple(kernels)) for reason, kernels in found.items())


def _sums(layer: Layer, accumulator: Accumulator | None) -> schema.ReportedAccumulator | None:
    """Return the smallest and largest sum of any channel, and the largest magnitude of a partial sum."""
    if accumulator is None:
        return None
    return schema.ReportedAccumulator(
        low=int(accumulator.low.min()),
        high=int(accumulator.high.max()),
        largest_partial=int(accumulator.partial.max()),
        type_bits=64 if _sum_bits(layer) == 63 else 32,
    )


def _with_inner_sums(program: Program) -> Ranges:
    """Return the program's ranges, including the sums in loop bodies and in external code."""
    _, *inner = program.graphs
    sums = {node: found for graph in inner for node, found in analyze(graph).accumulators.items()}
    sums |= {
        layer.node: found
        for layer in program.calls
        if isinstance(layer.kernel, ExternalKernel)
        for found in analyze(layer.kernel.region.body).accumulators.values()
    }
    return replace(program.ranges, accumulators={**program.ranges.accumulators, **sums})


def _overflow_proof(program: Program, ranges: Ranges) -> ReportedAccumulators:
    """Return the proof that sums stay in their type: 64 or 32 bits, see `accumulate.has_wide_sums`.

    The largest sum belongs to the layer that comes closest to the limit of its type.
    """
    largest, layer_name, limit = 0, "", 1 << 31
    widest = 0
    unproved: list[str] = []
    for layer in program.calls:
        sums = ranges.accumulators.get(layer.node)
        x = layer.node.operands[0].type if layer.node.operands else None
        if sums is None:
            if layer.macs and x is not None and not x.dtype.is_float:
                unproved.append(layer.name)
            continue
        widest = max(widest, _bits(sums) or 0)
        reach, room = int(sums.partial.max()), 1 << _sum_bits(layer)
        if reach >= room:
            unproved.append(layer.name)
        if reach * limit > largest * room:
            largest, layer_name, limit = reach, layer.name, room
    return ReportedAccumulators(
        proved=not unproved,
        largest=largest,
        limit=limit,
        largest_layer=layer_name,
        largest_bits=widest,
        unproved_layers=tuple(unproved),
        wrapping_layers=tuple(
            layer.name
            for layer in program.calls
            if dict(layer.call.function.spec).get("requantize") == RequantizeForm.WRAPPED.value
            or (layer.name in unproved and _always_wraps(layer))
        ),
    )


def _always_wraps(layer: Layer) -> bool:
    """Return whether every kernel wraps the layer's sums; vector kernels do so without a special form."""
    return layer.node.operands[0].type.dtype is DType.INT16 and not has_wide_sums(layer.node)


def _sum_bits(layer: Layer) -> int:
    """Return the bits of a layer's sums, without the sign bit."""
    return 63 if layer.macs and has_wide_sums(layer.node) else 31


def _pruned(proof: PruningProof) -> ReportedPruning:
    """Return the channels removed from a graph, for each value before pruning; channels are its last axis."""
    return ReportedPruning(
        graph=proof.graph_name,
        macs_before=proof.macs[0],
        macs_after=proof.macs[1],
        channels=proof.channels,
        values=tuple(
            ReportedPrunedValue(
                op=pruned.layer,
                tensor=pruned.value.name,
                channels=channel_count(pruned.value.type),
                removed=tuple(
                    ReportedRemoval(reason.name.lower(), low, high, tuple(channels))
                    for (reason, low, high), channels in pruned.groups()
                ),
            )
            for pruned in proof.values
        ),
    )


def _sliding(program: Program) -> ReportedSliding | None:
    """Return the results that a run reuses from earlier runs, or None if a run reads the whole input."""
    sliding = program.sliding
    if sliding is None:
        return None
    return ReportedSliding(
        axis=sliding.axis,
        frames=sliding.frames,
        step=sliding.step,
        warmup_runs=sliding.warmup_runs,
        macs=sliding.macs,
        window_macs=sliding.window_macs,
        kept=tuple(ReportedRowBuffer(**asdict(kept)) for kept in sliding.kept),
    )


def _relaxed(program: Program) -> ReportedRelaxations | None:
    """Return changes and deviations of relaxed numerics, or None if the graph is bit-exact."""
    if not program.relaxations:
        return None
    # Exact builds need no modules that run programs.
    from microfold.verification.verify import input_sets

    calls = input_sets([value.type for value in program.source.inputs], RELAXED_RUNS)
    return ReportedRelaxations(
        changes=tuple(ReportedChange(r.where, r.change) for r in program.relaxations),
        input_sets=len(calls),
        outputs=tuple(map(deviation_report, measure_deviation(program.source, program.graph, calls))),
    )


def _measured_choices(program: Program) -> dict[str, str]:
    """Return the choices that follow from measurements instead of estimates."""
    choices = program.context.choices
    return {} if choices is None else {c.name: c.taken for c in choices.asked if c.name in choices.trace}


def deviation_report(deviation: Deviation) -> OutputDeviation:
    """Return the deviation of one output from the imported graph."""
    return OutputDeviation(
        output=deviation.output,
        name=deviation.name,
        largest_steps=deviation.steps,
        largest=deviation.real,
        changed=deviation.changed,
        elements=deviation.elements,
    )


def _type(t: TensorType) -> dict[str, Any]:
    """Return the fields of a tensor type."""
    found: dict[str, Any] = {"dtype": t.dtype.value, "shape": tuple(t.shape)}
    if t.quant is not None:
        found |= {"scales": tuple(t.quant.scales), "zero_points": tuple(t.quant.zero_points)}
        if t.quant.axis is not None:
            found["axis"] = t.quant.axis
    return found


def _port(buffer: Buffer, labels: Sequence[str] | None = None) -> ReportedPort:
    names = tuple(labels) if labels else UNSET
    return ReportedPort(name=buffer.value.name, **_type(buffer.type), bytes=buffer.type.nbytes, labels=names)


def bench_report(
    program: Program, measurement: Measurement | None, result: SimulationResult, cycles: Cycles | None
) -> BuildReport:
    """Return `build_report` with the measurements of the simulated core.

    Args:
        cycles: cycles of the executed instructions of each call, if the core has a timing table or a pipeline
            model. They replace the estimates of the cost model.

    Returns:
        Report with instructions and cycles of the last call. `stack_used` is the maximum stack depth that any
        call wrote to, at most `stack`, the bound.
    """
    report, memory = build_report(program, measurement), result.memory
    total = result.instructions[-1]
    model = program.target.cycle_model if cycles is not None else None
    unknown = (None,) * len(program.layers)
    layer_cycles = cycles.layers[-1] if cycles is not None else unknown
    least_cycles = cycles.least_of_layers[-1] if cycles is not None else unknown
    figures = zip(report.layers, result.layer_instructions[-1], layer_cycles, least_cycles, strict=True)
    return replace_fields(
        report,
        ram=replace_fields(report.ram, stack_used=memory.stack),
        instructions=total,
        instructions_per_mac=round(total / program.macs, 4) if program.macs else None,
        estimated_cycles=cycles.total[-1] if cycles is not None else None,
        cycles_source=model.source if model is not None else None,
        cycles_error=model.error if model is not None else None,
        least_cycles=cycles.least[-1] if cycles is not None else None,
        layers=tuple(
            replace_fields(layer, instructions=count, estimated_cycles=estimate, least_cycles=least)
            for layer, count, estimate, least in figures
        ),
        image=ReportedImage(flash=memory.flash, ram=memory.ram),
    )


def verify_report(program: Program, result: Verification) -> dict[str, Any]:
    """Return the result of a verification as plain data."""
    differences = [
        {
            "layer": d.layer,
            "name": d.name,
            "input_set": d.call,
            "elements": d.count,
            "largest": d.largest,
        }
        for d in result.differences
    ]
    return {
        "model": program.name,
        "target": program.target.name,
        "exact": result.exact,
        "tensors": result.tensors,
        "inputs": result.inputs,
        "relaxed": [to_builtins(deviation_report(deviation)) for deviation in result.deviations],
        "unchecked": list(result.unchecked),
        "cut_short": result.cut_short,
        "first_difference": differences[0] if differences else None,
        "differences": differences,
    }
