"""What kernels cost: rows of the data files for all of them, and how far these are off."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from microfold import target
from microfold.kernels.cost.coefficients import LARGEST_ERROR, CostRow, chain, cores, find_row
from microfold.kernels.cost.terms import Terms
from microfold.kernels.kernel import DEFAULT_COEFFICIENT, KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from tests.kernels.calibration.fit import errors_of
from tests.kernels.calibration.layers import layers
from tests.kernels.calibration.measure import Sample, find_cases, measure, selectable
from tests.kernels.choice import layer_of
from tests.kernels.graphs import conv2d_graph
from tests.needs import CROSS_TOOLS
from tests.sampling import sampled

CORES = tuple(core.name for core in cores())
# What is allowed beyond `LARGEST_ERROR` where the row has a note: how far off, and of how many rows. Plain
# loops become vectors where compilers know their lengths; short ones become part of their callers, where
# registers that are left decide on the code; the time of divisions in software depends on values.
LARGEST_EXPLAINED = 0.25
MOST_EXPLAINED = 0.035


def _rows() -> list[tuple[str, CostRow]]:
    return [(name, row) for core in cores() for name, row in core.rows.items()]


def _is_priced(kernel: Kernel) -> bool:
    """Whether its cost is that of its parts, and not a formula of its own."""
    return type(kernel).cost is Kernel.cost


@pytest.mark.figures
@pytest.mark.parametrize("core", CORES)
def test_every_kernel_that_may_be_chosen_has_a_row(core: str) -> None:
    loaded = target.load(core)
    wanted = [k for k in KERNELS if selectable(k, loaded) and _is_priced(k)]
    missing = [kernel.name for kernel in wanted if kernel.row(loaded.features) is None]
    assert not missing, "python -m tests.kernels.calibration measures them"


@pytest.mark.figures
@pytest.mark.parametrize("core", CORES)
def test_rows_are_of_kernels_of_the_core(core: str) -> None:
    (found,) = (each for each in cores() if each.name == core)
    loaded = target.load(core)
    assert found.features == loaded.features
    assert loaded.cycle_model is not None
    assert found.cycles_source == loaded.cycle_model.source
    assert found.rows.keys() <= {kernel.name for kernel in KERNELS}


@pytest.mark.figures
@pytest.mark.parametrize("name", target.available())
def test_rivals_have_rows_of_one_core(name: str) -> None:
    """Of kernels for the same layers, no cycles of one core are compared with those of another."""
    loaded = target.load(name)
    found: dict[tuple[type, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for kernel in KERNELS:
        row = kernel.row(loaded.features) if selectable(kernel, loaded) and _is_priced(kernel) else None
        if row is not None:
            found[kernel.op, kernel.name.split("_")[0]][row.core].add(kernel.name)
    mixed = [
        {core: sorted(names) for core, names in each.items()} for each in found.values() if len(each) > 1
    ]
    assert not mixed


def test_errors_are_small_or_explained() -> None:
    larger = [
        (row.core, name, row.error, row.note)
        for name, row in _rows()
        if row.error is not None and row.error > LARGEST_ERROR
    ]
    assert not [each for each in larger if not each[3]], "a note in the data file says why"
    assert not [each for each in larger if each[2] > LARGEST_EXPLAINED]
    assert len(larger) <= MOST_EXPLAINED * sum(len(core.rows) for core in cores()), "terms are missing"
    assert not [(row.core, name) for name, row in _rows() if row.source not in ("measured", "by hand")]


def test_coefficients_are_not_negative() -> None:
    for name, row in _rows():
        values = [*row.instructions.values(), *row.cycles.values(), *row.alone.values()]
        assert min(values) >= 0 and max(values) > 0, name


@pytest.mark.figures
@pytest.mark.parametrize("core", CORES)
def test_rows_know_the_terms_of_layers(core: str) -> None:
    loaded = target.load(core)
    unknown: dict[str, set[str]] = defaultdict(set)
    for case in find_cases(layers()[::61], loaded):
        if not _is_priced(case.kernel):
            continue
        row = case.kernel.row(loaded.features)
        known = row.instructions.keys() if row is not None else set[str]()
        unknown[case.kernel.name] |= {t for t, count in case.terms.items() if count} - known
    assert not {name: terms for name, terms in unknown.items() if terms}


@pytest.mark.parametrize(
    ("name", "integers", "floats"),
    [
        ("cortex-m4", "cortex-m4", "cortex-m4"),
        ("cortex-m4-nofp", "cortex-m4", "cortex-m3"),
        ("cortex-m7", "cortex-m7", "cortex-m7"),
        ("cortex-m7-nofp", "cortex-m7", "cortex-m3"),
        ("cortex-m33", "cortex-m33", "cortex-m33"),
        ("cortex-m33-nofp", "cortex-m33", "cortex-m3"),
        ("cortex-m33-nodsp", "cortex-m3", "cortex-m3"),
        ("cortex-m3", "cortex-m3", "cortex-m3"),
        ("cortex-m0plus", "cortex-m0plus", "cortex-m0plus"),
        ("cortex-m55", "cortex-m55", "cortex-m55"),
        ("cortex-m55-nomve", "cortex-m4", "cortex-m3"),
        ("cortex-m55-nofp", "cortex-m55", "cortex-m3"),
        ("cortex-m85", "cortex-m85", "cortex-m85"),
        ("host", "cortex-m3", "cortex-m4"),
    ],
)
def test_the_closest_core_comes_first(name: str, integers: str, floats: str) -> None:
    features = target.load(name).features
    assert chain(features, False)[0].name == integers
    assert chain(features, True)[0].name == floats


def test_what_one_core_with_vectors_lacks_is_that_of_the_other() -> None:
    features = target.load("cortex-m85").features
    assert [core.name for core in chain(features, True)][:2] == ["cortex-m85", "cortex-m55"]


class _New(Kernel):
    """Not measured yet."""

    name = "s8_conv2d__c_new"

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, product=layer.node.macs())


class _Guessed(_New):
    def default_coefficient(self, term: str) -> float:
        return {"call": 25.0, "product": 3.0}[term]


class _Own(Kernel):
    """With an estimate that no data are needed for."""

    name = "s8_conv2d__c_own"

    def cost(self, layer: LayerContext) -> float:
        return 2.0 * layer.node.macs()


def test_kernels_that_are_like_others() -> None:
    layer = layer_of(conv2d_graph(4, 4, 2, 2))
    row = find_row("s8_conv2d__dsp_4x2", layer.target.features)
    assert row is not None and row.cycles != row.instructions

    class Like(Kernel):
        name = "s8_conv2d__dsp_like"
        like = "s8_conv2d__dsp_4x2"

        def terms(self, layer: LayerContext) -> Terms:
            return Terms(dict.fromkeys(row.instructions, 3.0))

    assert Like().cost(layer) == pytest.approx(3 * sum(row.instructions.values()))
    assert Like().cycles(layer) == pytest.approx(3 * sum(row.cycles.values()))


def test_kernels_that_no_file_knows() -> None:
    layer = layer_of(conv2d_graph(4, 4, 2, 2, (1, 1)))
    products = layer.node.macs()
    assert _New().cost(layer) == DEFAULT_COEFFICIENT * (1 + products)
    assert _Guessed().cost(layer) == _Guessed().single_caller_cost(layer) == 25 + 3 * products
    assert _Own().cost(layer) == 2 * products
    for core in CORES:
        layer = layer_of(conv2d_graph(4, 4, 2, 2, (1, 1)), core)
        ratio = chain(layer.target.features, False)[0].cycles_per_instruction
        assert (1 if layer.target.pipeline is None else 0.5) < ratio < 2
        for kernel in (_New(), _Guessed(), _Own()):
            assert kernel.cycles(layer) == pytest.approx(ratio * kernel.cost(layer))


def test_terms() -> None:
    row = Terms(row=1) + 3 * Terms(tap=2)
    assert 4 * row + Terms(call=1, row=1) == {"row": 5, "tap": 24, "call": 1}


def deviations(samples: list[Sample], core: str) -> dict[str, tuple[float, float]]:
    """By kernel: the median by which estimates are off, and what the row states."""
    features, found = target.load(core).features, dict[str, tuple[float, float]]()
    for name in dict.fromkeys(sample.kernel for sample in samples):
        row = find_row(name, features)
        if row is not None and row.error is not None:
            own = [sample for sample in samples if sample.kernel == name]
            found[name] = float(np.median(errors_of(own, row.instructions))), row.error
    return found


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", sampled(CORES, 4))
def test_estimates_are_off_by_what_is_stated(core: str) -> None:
    """Some layers, of which each kernel has few: what is stated is the median of more."""
    samples = measure(layers()[5::29], target.load(core))
    off = deviations(samples, core)
    assert len(off) > 40
    assert np.median([error for error, _ in off.values()]) < LARGEST_ERROR
