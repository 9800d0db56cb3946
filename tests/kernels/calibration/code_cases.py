"""Functions to measure: those of all variants of all kernels for the layers of the calibration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from microfold.analysis.ranges import analyze
from microfold.ir.graph import Graph
from microfold.kernels.band import lower_by_rows
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import kernels_for
from microfold.target import Target
from tests.kernels.calibration.code_sizes import CodeCase
from tests.kernels.calibration.measure import spread

# Functions of one name, at most.
MOST_FUNCTIONS = 28
# Layers that each function is made for, if its name has few.
FEW_FUNCTIONS, LAYERS = 3, 2
# One function of so many is measured with a table of rows, too, if its kernel can read one.
ROWS_EVERY = 4


def code_cases(
    graphs: Sequence[Graph], target: Target, *, small: bool, most: int = MOST_FUNCTIONS, wanted: str = ""
) -> list[CodeCase]:
    """Return functions with calls of them, those of one name side by side.

    Of a name with many functions those are taken that come first when each layer gives one at a time.

    Args:
        small: layers are compiled for size.
        most: functions of one name.
        wanted: names of functions begin so.
    """
    found: dict[str, dict[CFunction, _Found]] = defaultdict(dict)
    for place, index in enumerate(sorted(range(len(graphs)), key=spread)):
        graph = graphs[index]
        (node,) = graph.nodes
        layer = LayerContext(node, graph.constants, target, analyze(graph), compiled_for_size=small)
        for kernel in kernels_for(node):
            if _suits(kernel, target) and kernel.supports(layer) is None:
                for turn, variant in enumerate(kernel.variants(layer)):
                    _add(found, variant, layer, (turn, place), wanted)
    cases: list[CodeCase] = []
    for functions in found.values():
        own = sorted(functions.items(), key=lambda pair: pair[1].order)[:most]
        layers = LAYERS if len(own) <= FEW_FUNCTIONS else 1
        cases += [CodeCase(function, tuple(each.calls[:layers])) for function, each in own]
    return cases


@dataclass
class _Found:
    """Calls of a function; `order`: when the first of them comes."""

    order: tuple[int, int]
    calls: list[KernelCall] = field(default_factory=list[KernelCall])


def _suits(kernel: Kernel, target: Target) -> bool:
    return kernel.features <= target.features and not kernel.superseded_by & target.features


def _add(
    found: dict[str, dict[CFunction, _Found]],
    kernel: Kernel,
    layer: LayerContext,
    order: tuple[int, int],
    wanted: str,
) -> None:
    """Note the function of a variant, and now and then the same with a table of rows."""
    call = kernel.lower(layer)
    if call.function.library is not None or not call.function.name.startswith(wanted):
        return
    own = found[call.function.name]
    calls = [call]
    if call.function not in own and len(own) % ROWS_EVERY == 0 and kernel.supports_indirection(layer):
        calls.append(lower_by_rows(kernel, layer))
    for each in calls:
        same = own.setdefault(each.function, _Found(order)).calls
        if len(same) < LAYERS:
            same.append(each)
