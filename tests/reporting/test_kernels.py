"""What is shown of the kernels considered for a layer, in all their variants."""

from __future__ import annotations

from typing import Any

import pytest

from microfold import target
from microfold.compiler import explain_kernels
from microfold.ir.graph import Graph
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.selection.variant_labels import distinguish
from microfold.options import Options
from microfold.reporting.kernels import describe_candidates
from tests.kernels.choice import candidates_of, layer_of
from tests.kernels.graphs import conv2d_graph, depthwise_conv2d_graph, fully_connected_graph

SAME = ((1, 1), (1, 1))


def shown() -> dict[str, dict[str, Any]]:
    graph = conv2d_graph(16, 16, 16, 16, padding=SAME)
    described = describe_candidates(layer_of(graph), candidates_of(graph))
    return {row["kernel"]: row for row in described}


def test_every_variant_says_what_it_takes() -> None:
    variants = shown()["s8_conv2d__dsp_4x2"]["variants"]
    assert sorted(tuple(row["choices"].values()) for row in variants) == [
        ("int16", False, 1),
        ("int16", False, 4),
        ("paired", False, 1),
        ("paired", False, 4),
        ("paired", True, 4),
    ]
    paired, int16 = (
        next(row for row in variants if row["choices"] == {"packing": packing, "quads": False, "group": 4})
        for packing in ("paired", "int16")
    )
    assert int16["trades"] == ["input_scratch", "wide_weights"]
    assert paired["trades"] == ["input_scratch"]
    assert paired["cost"] > int16["cost"] and paired["bytes"] < int16["bytes"]
    assert paired["scratch"] == int16["scratch"] > 0


def test_what_is_not_chosen_has_a_reason() -> None:
    """The first variant of the first kernel is the chosen one; reasons come from the choice of the model."""
    graph = conv2d_graph(16, 16, 16, 16, padding=SAME)
    for explained in explain_kernels(graph, target.load("cortex-m4"), Options()):
        rows = describe_candidates(explained.layer, explained.candidates, explained.why_not)
        fitting = [variant for row in rows for variant in row["variants"]]
        assert fitting[0]["reason"] is None
        assert all(variant["reason"] for variant in fitting[1:])
        assert any("the model would cost at least" in variant["reason"] for variant in fitting[1:])


def test_variants_are_told_apart() -> None:
    graph = depthwise_conv2d_graph(16, 16, 8, (3, 3), padding=SAME)
    for row in describe_candidates(layer_of(graph), candidates_of(graph)):
        choices = [tuple(variant["choices"].items()) for variant in row["variants"]]
        assert len(set(choices)) == len(choices)


def test_as_few_choices_as_that_takes() -> None:
    def call(*spec: tuple[str, int]) -> KernelCall:
        return KernelCall(CFunction("t", "f", spec))

    assert distinguish([call(("a", 1), ("b", 2))]) == [{}]
    calls = [call(("a", 1), ("b", 2), ("c", 2)), call(("a", 1), ("b", 3), ("c", 3)), call(("a", 1), ("c", 2))]
    assert distinguish(calls) == [{"b": 2}, {"b": 3}, {}]


@pytest.mark.parametrize(
    ("graph", "core", "kernel"),
    [
        (
            conv2d_graph(49, 10, 1, 64, (10, 4), strides=(2, 2), padding=((4, 5), (1, 1))),
            "cortex-m4",
            "s8_conv2d__dsp_fpu",
        ),
        (fully_connected_graph(64, 12, largest=20), "cortex-m0plus", "s8_fully_connected__thumb1_pairs"),
    ],
    ids=["scratch", "residuals"],
)
def test_no_variant_is_listed_twice(graph: Graph, core: str, kernel: str) -> None:
    """Two limits may lead to the same code."""
    (row,) = (
        row
        for row in describe_candidates(layer_of(graph, core), candidates_of(graph, core))
        if row["kernel"] == kernel
    )
    variants = [
        str({name: row[name] for name in row if name not in ("reason", "trades")}) for row in row["variants"]
    ]
    assert variants and len(set(variants)) == len(variants)
