"""Compilation pipeline: import a model, optimise it, select kernels, plan memory, and build a `Program`.

::

    .tflite, .mf  --frontend-->  Graph  --passes-->  Graph  --kernels.selection-->  one kernel per layer
                                                                                          |
    C files  <--codegen--  Program  <--lowering.prepared--  calls, schedule, arena  <--plan--'

A `Program` has everything that the C files contain: `codegen` only prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from microfold.codegen.names import Namer, model_identifier
from microfold.errors import BudgetError, InputError
from microfold.frontend.labels import NO_LABELS, Labels
from microfold.frontend.model_source import load_model
from microfold.ir.graph import Graph
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import Candidate, LayerCandidates
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.lowering.budget_remedies import explained
from microfold.lowering.chosen_kernels import (
    SelectionOverride,
    StreamedModel,
    choose_kernels,
    least_streamed_ram,
)
from microfold.lowering.optimised import ImportedModel, optimised
from microfold.lowering.prepared import PreparedProgram, program_of
from microfold.lowering.schedule import claim_name
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.passes.kinds import Pass
from microfold.program import Origin, Program, origin_of
from microfold.target import Target


class ExplainedLayer(Struct, frozen=True, eq=False):
    """Layer with the kernels considered for it, the selected one first.

    Attributes:
        why_not: reason for each variant that was not selected, if known.
    """

    layer: LayerContext
    candidates: Sequence[Candidate]
    why_not: Mapping[Kernel, str]


def compile_file(
    path: str | Path,
    target: Target,
    options: Options | None = None,
    *,
    name: str = "",
    signature: str | None = None,
    context: PassContext | None = None,
    passes: Pass | None = None,
    explain: bool = False,
) -> Program:
    """Compile a `.tflite` file, a C array of one, or a graph in its text form (`.mf`).

    Args:
        name: prefix of all C names; default: the file's name.
        signature: signature whose subgraph is compiled; default: the first subgraph.
        context: settings and instruments of the passes; see `compile_graph`.
        passes: pipeline to run instead of the default one; see `PassContext.pipeline`.
        explain: whether to try other options if a budget is not met, to name remedies in the error.

    Raises:
        MicrofoldError: the file is malformed, or has parts that cannot be compiled. All of them are listed.
    """
    model = load_model(path, signature)
    assert model.data is not None  # a graph from a file
    return compile_graph(
        model.graph,
        target,
        options,
        name=name,
        context=context,
        passes=passes,
        origin=origin_of(Path(model.file), model.data),
        labels=model.labels,
        explain=explain,
    )


def compile_graph(
    graph: Graph,
    target: Target,
    options: Options | None = None,
    *,
    name: str = "",
    context: PassContext | None = None,
    passes: Pass | None = None,
    origin: Origin | None = None,
    labels: Labels = NO_LABELS,
    costs: MeasuredCosts | None = None,
    revise: SelectionOverride | None = None,
    explain: bool = False,
) -> Program:
    """Compile an imported graph; see `compile_file`.

    Args:
        context: settings and instruments of the passes. `target` and `options` override its settings of
            numerics and external code.
        passes: pipeline to run instead of the default one; see `PassContext.pipeline`.
        origin: file that the graph was read from.
        labels: class names of the outputs.
        costs: measured costs of kernels; default: selection uses estimates.
        revise: callback that replaces the selected kernels. Its result, one candidate with its variant for
            each layer, is final even if it exceeds the budgets.
        explain: whether to try other options if a budget is not met, to name remedies in the error.

    Raises:
        InputError: options and context ask for different numerics, or the labels are required and do not fit.
        BudgetError: no build was found that fits the RAM and flash limits of the options.
    """
    imported = ImportedModel.of(graph, target, options or Options(), context, costs)
    if passes is not None:
        imported = replace(imported, context=replace(imported.context, pipeline=passes))
    found = prepare(imported, name=name, origin=origin, labels=labels, revise=revise, explain=explain)
    return found.program


def prepare(
    imported: ImportedModel,
    *,
    name: str = "",
    origin: Origin | None = None,
    labels: Labels = NO_LABELS,
    revise: SelectionOverride | None = None,
    explain: bool = False,
) -> PreparedProgram:
    """Select the kernels of an imported graph; for arguments and errors see `compile_graph`."""
    name = model_identifier(name or imported.graph.name)

    def build(other: Options) -> Program:
        quiet = replace(imported.context, sink=None, instruments=(), choices=None)
        model = optimised(replace(imported, options=other, context=quiet))
        return program_of(choose_kernels(model, revise), name)

    model = optimised(imported)
    try:
        kernels = model.kernels if revise is None else choose_kernels(model, revise)
    except BudgetError as refusal:
        if not explain:
            raise
        raise explained(refusal, imported.options, build, partial(least_streamed_ram, model)) from None

    def finish(program: Program) -> Program:
        return replace(
            program,
            origin=origin,
            labels=labels.of_outputs([buffer.type for buffer in program.outputs]),
            labels_ignored=labels.ignored,
            measured_on=imported.costs.source if imported.costs is not None else "",
        )

    return PreparedProgram(kernels, name, finish)


def explain_kernels(
    graph: Graph,
    target: Target,
    options: Options,
    *,
    context: PassContext | None = None,
    costs: MeasuredCosts | None = None,
    dump_model: Path | None = None,
) -> list[ExplainedLayer]:
    """Return every layer with all kernels considered for it, the one that `compile_graph` selects first.

    The layers are in the order of execution. If some layer has no kernel, they are in the order of the graph,
    and the candidates state why each kernel was rejected.

    Raises:
        InputError: as `compile_graph`.
    """
    model = optimised(ImportedModel.of(graph, target, options, context, costs=costs))
    if model.selected.problems:
        return [ExplainedLayer(ranking.layer, [*ranking.candidates], {}) for ranking in model.rankings]
    kernels = model.kernels
    if dump_model is not None:
        if isinstance(kernels, StreamedModel):
            raise InputError(
                "dump_model requires whole tensors; this model has streamed layers: use rows=never"
            )
        kernels.selection.write_model(dump_model)
    if isinstance(kernels, StreamedModel):
        rankings, order = kernels.streamed.rankings, range(len(kernels.chosen))
    else:
        rankings, order = model.rankings, kernels.planned.order
    why_not = kernels.selection.why_not()
    return [
        ExplainedLayer(
            rankings[index].layer, _chosen_first(rankings[index], kernels.chosen[index]), why_not[index]
        )
        for index in order
    ]


def _chosen_first(ranking: LayerCandidates, chosen: Candidate) -> list[Candidate]:
    return [chosen, *(c for c in ranking.candidates if c.kernel.name != chosen.kernel.name)]


def layer_names(layers: Iterable[ExplainedLayer]) -> list[str]:
    """Return the names that `compile_graph` assigns to the layers, see `Layer.name`."""
    namer = Namer()
    firsts = ((each.layer, next(iter(each.candidates), None)) for each in layers)
    return [claim_name(namer, layer, first.kernel if first else None) for layer, first in firsts]
