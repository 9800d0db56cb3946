"""What is shown of the kernels considered for a layer, in all their variants."""

from __future__ import annotations

from typing import Any

import pytest

from microfold.ir.graph import Graph
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.selection.distinguish import distinguish
from microfold.report.kernels import describe_candidates
from tests.kernels.choice import candidates_of, layer_of
from tests.kernels.graphs import conv2d_graph, depthwise_conv2d_graph, fully_connected_graph

SAME = ((1, 1), (1, 1))


def shown(level: str) -> dict[str, dict[str, Any]]:
    graph = conv2d_graph(16, 16, 16, 16, padding=SAME)
    described = describe_candidates(layer_of(graph), candidates_of(graph, level=level))
    return {row["kernel"]: row for row in described}


def test_every_variant_says_what_it_takes() -> None:
    variants = shown("balanced")["s8_conv2d__dsp_4x2"]["variants"]
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
    assert int16["reason"] == "weights of 16 bits take too much flash"
    assert paired["trades"] == ["input_scratch"]
    assert "as many cycles as another variant" in paired["reason"]
    assert paired["cost"] > int16["cost"] and paired["bytes"] < int16["bytes"]
    assert paired["scratch"] == int16["scratch"] > 0


def test_variants_that_are_worth_it_but_slower() -> None:
    """The first one is the kernel's own; others say by how much they are worse."""
    for row in shown("speed").values():
        reasons = [variant["reason"] for variant in row["variants"]]
        if row["cost"] is None:
            assert not reasons or row["reason"] == reasons[0]
        else:
            assert reasons[0] is None and row["cost"] == row["variants"][0]["cost"]
            assert all(reasons[1:])
    slower = shown("speed")["s8_conv2d__dsp_4x2"]["variants"][1]
    assert slower["reason"].endswith("times as many cycles as another variant, memory counted")


def test_variants_are_told_apart() -> None:
    graph = depthwise_conv2d_graph(16, 16, 8, (3, 3), padding=SAME)
    for row in describe_candidates(layer_of(graph), candidates_of(graph, level="speed")):
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
        for row in describe_candidates(layer_of(graph, core), candidates_of(graph, core, "speed"))
        if row["kernel"] == kernel
    )
    variants = [
        str({name: row[name] for name in row if name not in ("reason", "trades")}) for row in row["variants"]
    ]
    assert variants and len(set(variants)) == len(variants)


def test_what_suits_the_layer_alone_has_a_reason() -> None:
    """The model has another variant: the kernel's own choice says why it is not taken."""
    graph = conv2d_graph(16, 16, 16, 16, padding=SAME)
    candidates = candidates_of(graph, level="balanced")
    other = next(offer for offer in candidates[0].offers if offer.reason is not None)
    first = describe_candidates(layer_of(graph), [candidates[0].variant(other), *candidates[1:]])[0]
    assert [each["reason"] is None for each in first["variants"]] == [True] + [False] * (
        len(first["variants"]) - 1
    )
