"""Figures of builds, without their programs."""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.kernels.selection.objective import SelectionFigures
from microfold.lowering.optimised import ImportedModel, optimised
from microfold.options import Options
from microfold.target import Target


def figures_of_build(graph: Graph, target: Target, options: Options) -> SelectionFigures:
    """Return the figures of the kernels that a build would have."""
    return optimised(ImportedModel.of(graph, target, options)).kernels.figures
