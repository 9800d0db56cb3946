"""Functions to measure the code of: those of all variants of all kernels for the layers of the calibration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from microfold.analysis.ranges import analyze
from microfold.ir.graph import Graph
from microfold.kernels.band import lower_by_rows
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.loading import load_kernels
from microfold.target import Target
from tests.kernels.calibration.code_sizes import CodeCase
from tests.kernels.calibration.measure import spread

# Functions of one kernel, at most.
MOST_FUNCTIONS = 20
# Layers that each function of a kernel is made for, by how many functions the kernel has at most.
LAYERS = ((3, 2), (MOST_FUNCTIONS, 1))


def code_cases(graphs: Sequence[Graph], target: Target, *, small: bool, wanted: str = "") -> list[CodeCase]:
    """Return functions with calls of them, those of one name side by side.

    Args:
        small: layers are compiled for size.
        wanted: names of functions begin so.
    """
    found: dict[str, dict[CFunction, list[KernelCall]]] = defaultdict(dict)
    for index in sorted(range(len(graphs)), key=spread):
        graph = graphs[index]
        (node,) = graph.nodes
        load_kernels(type(node.op))
        layer = LayerContext(node, graph.constants, target, analyze(graph), compiled_for_size=small)
        for kernel in KERNELS:
            if kernel.op is type(node.op) and _suits(kernel, target) and kernel.supports(layer) is None:
                for variant in kernel.variants(layer):
                    _add(found, variant, layer, wanted)
    return [
        CodeCase(function, tuple(calls[: _layers(len(own))]))
        for own in found.values()
        for function, calls in own.items()
    ]


def _layers(functions: int) -> int:
    return next(layers for most, layers in LAYERS if functions <= most)


def _suits(kernel: Kernel, target: Target) -> bool:
    return kernel.features <= target.features and not kernel.superseded_by & target.features


def _add(
    found: dict[str, dict[CFunction, list[KernelCall]]], kernel: Kernel, layer: LayerContext, wanted: str
) -> None:
    calls = [kernel.lower(layer)]
    if kernel.reads_rows(layer):
        calls.append(lower_by_rows(kernel, layer))
    for call in calls:
        own = found[call.function.name]
        if call.function.library is not None or not call.function.name.startswith(wanted):
            continue
        if call.function not in own and len(own) >= MOST_FUNCTIONS:
            continue
        same = own.setdefault(call.function, [])
        if len(same) < LAYERS[0][1]:
            same.append(call)
