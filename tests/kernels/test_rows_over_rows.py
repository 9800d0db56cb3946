"""Kernels that find rows by addresses: outputs over those rows that they say they read no more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from microfold import target
from microfold.kernels.band import first_row_held
from microfold.kernels.kernel import KERNELS, Kernel
from tests.kernels import graphs
from tests.kernels.rows_over_rows import RowsUnderOutput, assert_rows_are_free, rows_under_output
from tests.kernels.test_bands import CORES, kernels_of, layer_of, layers
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

RUNS = 3


def cases(kernel: Kernel, core: str) -> Iterator[RowsUnderOutput]:
    for layer in layers(kernel.op, core):
        if kernel.supports(layer) is None:
            for variant in range(len(kernel.variants(layer))):
                case = rows_under_output(kernel, layer, variant)
                if case is not None:
                    yield case


def check(core: str, most: int | None = None) -> None:
    """In one program, as in `test_bands`.

    Args:
        most: cases of each kernel; None: all.
    """
    found = [case for kernel in kernels_of(core) for case in itertools.islice(cases(kernel, core), most)]
    assert found
    assert_rows_are_free(found, target.load(core), RUNS)


def test_portable() -> None:
    need_tools("cc")
    check("host", 2)


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(CORES[1:], 3))
def test_cores(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    check(core, 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("core", CORES)
def test_all_cases(core: str) -> None:
    need_tools("cc", *CROSS_TOOLS)
    check(core)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Row by row, by tiles, and one channel after the other.
        ("s8_conv2d__dsp_4x2", [0, 0, 1, 2, 3, 4, 5]),
        ("s8_conv2d__dsp_winograd_4x4", [0, 0, 0, 0, 3, 3, 3]),
        ("s8_depthwise_conv2d__c_plane", [0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_rows_that_are_still_read(name: str, expected: list[int]) -> None:
    (kernel,) = (kernel for kernel in KERNELS if kernel.name == name)
    make = graphs.depthwise_conv2d_graph if "depthwise" in name else graphs.conv2d_graph
    shape = (7, 6, 4) if "depthwise" in name else (7, 6, 4, 4)
    layer = layer_of(make(*shape, padding=((1, 1), (1, 1))), "cortex-m4")
    (variant, *_) = kernel.variants(layer)
    assert [first_row_held(variant, layer, row) for row in range(7)] == expected
