"""The way of a model, on one page: import it, lower it to kernels and a plan, and make a `Program`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from microfold.codegen.names import Namer, model_identifier
from microfold.errors import BudgetError, InputError
from microfold.frontend import text_form, tflite
from microfold.frontend.labels import NO_LABELS, Labels, labels_of_model
from microfold.ir.graph import Graph
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate, Ranking
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.lowering.chosen_kernels import Revise, Rows, choose_kernels, least_by_rows
from microfold.lowering.optimised import Imported, optimised
from microfold.lowering.prepared import Prepared, program_of
from microfold.lowering.refusals import explained
from microfold.lowering.schedule import claim_name
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.passes.kinds import Pass
from microfold.program import Origin, Program, origin_of
from microfold.support.frozen import frozen
from microfold.target import Target


@frozen(eq=False)
class ExplainedLayer:
    """A layer with the kernels considered for it, the chosen one first.

    Attributes:
        why_not: for variants that are not chosen, as far as it is known.
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
    """Compile a `.tflite` file, or a graph in its text form (`.mf`).

    Args:
        name: prefix of all C names; default: the file's name.
        signature: whose subgraph is taken; None: the first one.
        context: which passes run, and what watches them; see `compile_graph`.
        passes: what is run instead of the default pipeline; see `compile_graph`.
        explain: whether other options are tried to say more of budgets that are not met.

    Raises:
        MicrofoldError: the file is malformed or has parts that cannot be compiled (all are listed).
    """
    path = Path(path)
    if path.suffix == text_form.SUFFIX:
        graph, data = text_form.read_graph(path)
        labels = NO_LABELS
    else:
        data = tflite.read_file(path)
        graph = tflite.import_model(data, path.stem, path.name, signature=signature)
        labels = labels_of_model(data)
    return compile_graph(
        graph,
        target,
        options,
        name=name,
        context=context,
        passes=passes,
        origin=origin_of(path, data),
        labels=labels,
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
    revise: Revise | None = None,
    explain: bool = False,
) -> Program:
    """Compile an imported graph; see `compile_file`.

    Args:
        context: which passes run, and what watches them. What the target and the options say of numerics and
            external code is taken from them.
        passes: what is run instead of the default pipeline; of that, the mandatory ones come behind them.
        origin: the file of the graph.
        labels: what the classes of outputs may be called.
        costs: what kernels take, where that was measured; None: estimates decide.
        revise: has the last word on the kernels: what it gives, candidates of the layers with their variants,
            is taken whatever the budgets are.
        explain: whether other options are tried to say more of budgets that are not met.

    Raises:
        InputError: options and context ask for different numerics, or the labels are required and do not fit.
        BudgetError: nothing that was found fits the RAM and the flash that the options allow.
    """
    imported = Imported.of(graph, target, options or Options(), context, passes, costs)
    found = prepare(imported, name=name, origin=origin, labels=labels, revise=revise, explain=explain)
    return found.program


def prepare(
    imported: Imported,
    *,
    name: str = "",
    origin: Origin | None = None,
    labels: Labels = NO_LABELS,
    revise: Revise | None = None,
    explain: bool = False,
) -> Prepared:
    """Choose the kernels of an imported graph; for arguments and errors see `compile_graph`."""
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
        raise explained(refusal, imported.options, build, partial(least_by_rows, model)) from None

    def finish(program: Program) -> Program:
        return replace(
            program,
            origin=origin,
            labels=labels.of_outputs([buffer.type for buffer in program.outputs]),
            labels_ignored=labels.ignored,
            measured_on=imported.costs.source if imported.costs is not None else "",
        )

    return Prepared(kernels, name, finish)


def explain_kernels(
    graph: Graph,
    target: Target,
    options: Options,
    *,
    context: PassContext | None = None,
    costs: MeasuredCosts | None = None,
    dump_model: Path | None = None,
) -> list[ExplainedLayer]:
    """Every layer with every kernel considered for it, the one that `compile_graph` chooses first.

    The layers are in the order in which they are computed.

    Where a layer has none, the reasons of all kernels are listed.

    Raises:
        InputError: as `compile_graph`.
    """
    model = optimised(Imported.of(graph, target, options, context, costs=costs))
    if model.selected.problems:
        return [ExplainedLayer(ranking.layer, [*ranking.candidates], {}) for ranking in model.rankings]
    kernels = model.kernels
    if dump_model is not None:
        if isinstance(kernels, Rows):
            raise InputError("dump_model is for kernels of whole tensors; this model is computed by rows")
        kernels.selection.write_model(dump_model)
    if isinstance(kernels, Rows):
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


def _chosen_first(ranking: Ranking, chosen: Candidate) -> list[Candidate]:
    return [chosen, *(c for c in ranking.candidates if c.kernel.name != chosen.kernel.name)]


def layer_names(layers: Iterable[ExplainedLayer]) -> list[str]:
    """What `compile_graph` calls the layers: `Layer.name`."""
    namer = Namer()
    firsts = ((each.layer, next(iter(each.candidates), None)) for each in layers)
    return [claim_name(namer, layer, first.kernel if first else None) for layer, first in firsts]
