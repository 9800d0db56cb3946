"""The way of a model, on one page: import it, lower it to kernels and a plan, and make a `Program`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from microfold.analysis.pruning_proof import PruningProof
from microfold.analysis.relaxation import Relaxation
from microfold.codegen.names import Namer, model_identifier
from microfold.errors import BudgetError, InputError
from microfold.frontend import text_form, tflite
from microfold.frontend.labels import NO_LABELS, Labels, labels_of_model
from microfold.ir.graph import Graph
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate, Ranking
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.lowering.choose import judged_by_objective
from microfold.lowering.lower import find_way, lower
from microfold.lowering.refusals import explained
from microfold.lowering.regions import with_regions
from microfold.lowering.schedule import claim_name
from microfold.lowering.way import Revise, Way
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.passes.kinds import Pass
from microfold.program import Origin, Program, origin_of
from microfold.target import Target


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
    options = options or Options()
    name = model_identifier(name or graph.name)

    def planned(way: Way) -> Program:
        return with_regions(lower(way, name), lambda fetched: lower(way, name, fetched))

    def build(other: Options) -> Program:
        quiet = replace(context, sink=None, instruments=(), choices=None) if context is not None else None
        return planned(find_way(graph, target, other, quiet, passes, costs, revise))

    way = find_way(graph, target, options, context, passes, costs, revise)
    try:
        program = planned(way)
    except BudgetError as refusal:
        if not explain:
            raise
        raise explained(refusal, options, build, way.least_by_rows) from None
    evidence = [decision.evidence for decision in way.decisions]
    return replace(
        program,
        context=way.context,
        sliding=way.sliding,
        ranges=way.ranges,
        pruned=tuple(item for item in evidence if isinstance(item, PruningProof)),
        relaxations=tuple(item for item in evidence if isinstance(item, Relaxation)),
        origin=origin,
        labels=labels.of_outputs([buffer.type for buffer in program.outputs]),
        labels_ignored=labels.ignored,
        measured_on=costs.source if costs is not None else "",
    )


def explain_kernels(
    graph: Graph,
    target: Target,
    options: Options,
    *,
    context: PassContext | None = None,
    costs: MeasuredCosts | None = None,
    dump_model: Path | None = None,
) -> list[tuple[LayerContext, list[Candidate]]]:
    """Every layer with every kernel considered for it, the one that `compile_graph` chooses first.

    The layers are in the order in which they are computed.

    Where a layer has none, the reasons of all kernels are listed.

    Raises:
        InputError: as `compile_graph`.
    """
    way = find_way(graph, target, options, context, costs=costs)
    if dump_model is not None:
        if not options.objective or way.by_rows:
            raise InputError("dump_model is for kernels of whole tensors that an objective chooses: give one")
        assert way.selected.exact is not None
        way.selected.exact.write_model(dump_model)
    if way.by_rows:
        ranked = zip(way.streamed.rankings, way.streamed.chosen, strict=True)
        return [(ranking.layer, _chosen_first(ranking, chosen)) for ranking, chosen in ranked]
    if not all(r.candidates and r.candidates[0].cost is not None for r in way.rankings):
        return [(ranking.layer, [*ranking.candidates]) for ranking in way.rankings]
    layers: list[tuple[LayerContext, list[Candidate]]] = []
    for index in way.planned.order:
        ranking = way.rankings[index]
        found = _chosen_first(ranking, way.chosen[index])
        by_objective = way.selected.exact is not None and not ranking.fixed
        layers.append((ranking.layer, [*map(judged_by_objective, found)] if by_objective else found))
    return layers


def _chosen_first(ranking: Ranking, chosen: Candidate) -> list[Candidate]:
    return [chosen, *(c for c in ranking.candidates if c.kernel.name != chosen.kernel.name)]


def layer_names(layers: Iterable[tuple[LayerContext, Sequence[Candidate]]]) -> list[str]:
    """What `compile_graph` calls the layers: `Layer.name`."""
    namer = Namer()
    return [claim_name(namer, layer, found[0].kernel if found else None) for layer, found in layers]
