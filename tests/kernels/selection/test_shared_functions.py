"""Functions that layers share: the choice against all others there are, on small random problems."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph, explain_kernels
from microfold.ir.graph import Graph
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection.cheapest import Candidate
from microfold.kernels.selection.shared_functions import BYTES_FOR_TIME, Option, select_smallest
from microfold.options import Options
from tests.kernels import graphs
from tests.kernels.random_networks import merge

TARGET = target.load("cortex-m4")


def _kernel(name: str, code: int) -> Kernel:
    kernel = Kernel()
    kernel.name = name
    kernel.code = code  # type: ignore[misc]
    return kernel


def _problem(seed: int) -> list[list[Option]]:
    rng = np.random.default_rng(seed)
    functions = [(CFunction("t", f"f{i}"), _kernel(f"k{i}", int(rng.integers(100, 1500)))) for i in range(6)]
    layers: list[list[Option]] = []
    for _ in range(5):
        size = int(rng.integers(1, 5))
        chosen = [functions[i] for i in rng.choice(len(functions), size, replace=False)]
        costs = [float(rng.integers(1000, 9000)) for _ in chosen]
        layers.append(
            [
                Option(Candidate(k, cost, None), KernelCall(f), cost, int(rng.integers(100, 900)))
                for (f, k), cost in zip(chosen, costs, strict=True)
            ]
        )
    return layers


def _bytes(options: tuple[Option, ...], fastest: float) -> float:
    code = {option.function: option.kernel.code for option in options}
    time = BYTES_FOR_TIME / fastest * sum(option.cost for option in options)
    return sum(code.values()) + sum(option.flash for option in options) + time


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_smaller(seed: int) -> None:
    layers = _problem(seed)
    fastest = sum(min(option.cost for option in options) for options in layers)
    found = _bytes(tuple(select_smallest(layers)), fastest)
    assert found == pytest.approx(min(_bytes(c, fastest) for c in itertools.product(*layers)))


@pytest.mark.parametrize(("saved", "taken"), [(300, True), (200, False)])
def test_other_forms_come_after_kernels(saved: int, taken: bool) -> None:
    """A form with shorter constants draws no layer from faster kernels; all that have its kernel share it."""
    fast, kernel, form = _kernel("fast", 600), _kernel("kernel", 500), _kernel("form", 500)
    form.form_of = "kernel"  # type: ignore[misc]
    functions = {k: CFunction("t", k.name) for k in (fast, kernel, form)}

    def option(k: Kernel, cost: float, flash: int) -> Option:
        return Option(Candidate(k, cost, None), KernelCall(functions[k]), cost, flash)

    # The third layer can only be computed by the kernel as it is.
    alike = [[option(kernel, 2000, 1000), option(form, 2000, 1000 - saved)] for _ in range(2)]
    only = [option(kernel, 2000, 1000)]
    quick = [option(fast, 1000, 900), option(kernel, 9000, 500), option(form, 9000, 100)]
    names = [chosen.kernel.name for chosen in select_smallest([*alike, only, quick])]
    assert names == [*("form" if taken else "kernel" for _ in range(2)), "kernel", "fast"]


def test_each_layer_gets_one_of_its_own() -> None:
    layers = _problem(3)
    assert all(option in options for option, options in zip(select_smallest(layers), layers, strict=True))
    assert select_smallest([]) == []


def _network() -> Graph:
    """Layers that have four functions where flash counts less."""
    return merge(
        [
            graphs.conv2d_graph(8, 8, 8, 12, padding=((1, 1), (1, 1))),
            graphs.conv2d_graph(9, 9, 4, 6, strides=(2, 2), activation=graphs.RELU),
            graphs.conv2d_graph(6, 6, 16, 8, (1, 1)),
            graphs.fully_connected_graph(24, 5, batch=4),
        ]
    )


def test_layers_share_functions() -> None:
    shared, separate = (
        {layer.call.function for layer in compile_graph(_network(), TARGET, options).layers}
        for options in (Options(optimize="size"), Options(optimize="speed"))
    )
    assert len(shared) < len(separate) == 4


def test_the_choice_is_what_is_shown() -> None:
    options = Options(optimize="size")
    program = compile_graph(_network(), TARGET, options)
    shown = explain_kernels(_network(), TARGET, options)
    assert [found[0].kernel.name for _, found in shown] == [layer.kernel.name for layer in program.layers]
