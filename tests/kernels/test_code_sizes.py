"""Code sizes of kernels: data files, and how far off their estimates are."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.code_rows import CodeRow, around_calls, code_files, description_bytes, estimate
from microfold.kernels.cost.code_terms import term
from microfold.kernels.kernel import KERNELS, Kernel
from tests.kernels.calibration.code_cases import code_cases
from tests.kernels.calibration.code_sizes import shared_sizes
from tests.kernels.calibration.layers import layers
from tests.kernels.choice import layer_of
from tests.kernels.graphs import conv2d_graph
from tests.needs import CROSS_TOOLS
from tests.sampling import sampled

CORES = tuple(code_files())
# The median and the 90th percentile by which estimates may be off where all functions of a name are known,
# and of functions that were held back from the fit.
LARGEST_KNOWN = (0.02, 0.1)
LARGEST_HELD_BACK = (0.06, 0.3)


@pytest.mark.parametrize("core", CORES)
def test_stated_errors_are_small(core: str) -> None:
    file = code_files()[core]
    assert all(np.array(file.known_errors) <= LARGEST_KNOWN)
    assert all(np.array(file.held_back_errors) <= LARGEST_HELD_BACK)


@pytest.mark.figures
@pytest.mark.parametrize("core", CORES)
def test_rows_have_terms_and_helpers_that_are_known(core: str) -> None:
    file = code_files()[core]
    for name in file.rows:
        row = file.rows[name]
        assert "base" in row.code, name
        assert row.helpers.keys() <= file.helpers.keys(), name
        for text in (*row.code, *row.helpers.values()):
            term(text)


@pytest.mark.figures
@pytest.mark.parametrize("core", CORES)
def test_functions_of_layers_have_a_size(core: str) -> None:
    loaded = target.load(core)
    for small in (False, True):
        cases = code_cases(layers()[::61], loaded, small=small)
        missing = {
            case.function.name
            for case in cases
            if estimate(case.calls[0], loaded.features, small=small) is None
        }
        assert not missing, "python -m tests.kernels.calibration --code measures them"


def test_a_kernel_that_no_file_knows_is_guessed() -> None:
    class New(Kernel):
        name = "s8_conv2d__c_new"
        code = 1000

    layer = layer_of(conv2d_graph(4, 4, 2, 2))
    found = New().code_bytes(layer, KernelCall(CFunction("new.c.j2", "s8_conv2d__c_new")))
    assert (found.shared, found.alone, dict(found.helpers)) == (800, 800, {"s8_conv2d__c_new": 200})


def test_functions_share_the_parts_that_their_different_choices_do_not_change() -> None:
    row = CodeRow(
        functions=9,
        complete=True,
        error=0.0,
        code={
            "base": (900, 900, 900, 900, 900, 900),
            "groups": (300, 300, 300, 300, 300, 300),
            "segment": (300, 300, 2, 300, 300, 2),
        },
        least=(0, 0, 0, 0, 0, 0),
        most=(9000, 9000, 9000, 9000, 9000, 9000),
        helpers={},
    )

    def parts(**spec: int) -> list[str]:
        return row.choices_of_parts(2, spec)

    assert parts(groups=4, segment=0, shift=9) == parts(groups=4, segment=7, shift=9)
    assert parts(groups=4, segment=0, shift=9) != parts(groups=2, segment=0, shift=9)
    assert parts(groups=4, segment=0, shift=9) != parts(groups=4, segment=0, shift=8), "in no term"


def test_layers_compiled_for_size_take_less() -> None:
    graph = conv2d_graph(9, 9, 8, 12)
    (kernel,) = (each for each in KERNELS if each.name == "s8_conv2d__c_2x2")
    layer = layer_of(graph)
    call = kernel.variants(layer)[0].lower(layer)
    normal, small = (estimate(call, layer.target.features, small=small) for small in (False, True))
    assert normal is not None and small is not None
    assert small.shared < normal.shared and normal.alone < normal.shared


def test_code_around_kernels() -> None:
    features = target.load("cortex-m4").features
    assert all(0 < around_calls(features, 12, small=small) < 600 for small in (False, True))
    (kernel,) = (each for each in KERNELS if each.name == "s8_conv2d__c_2x2")
    call = kernel.lower(layer_of(conv2d_graph(9, 9, 8, 12)))
    pointers = 4 * len(call.constants)
    assert pointers < description_bytes(call) <= 4 * len(call.parameters)


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", sampled(CORES))
def test_functions_are_as_large_as_the_file_says(core: str) -> None:
    loaded, rows = target.load(core), code_files()[core].rows
    cases = code_cases(layers()[::3], loaded, small=False, wanted="s8_max_pool2d__")
    sizes = shared_sizes(cases, loaded, "-O2")
    errors = [rows[s.call.function.name].size(0, dict(s.call.function.spec)) / s.own - 1 for s in sizes]
    assert float(np.quantile(np.abs(errors), 0.9)) <= 0.1
