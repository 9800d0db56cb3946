"""Proofs of pruning hold what they claim, and the checker finds those that do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold import target
from microfold.analysis.check_pruning import check_pruning
from microfold.analysis.pruning_proof import Claim, PrunedValue, PruningProof, Reason
from microfold.cli.common import to_json
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Node
from microfold.ir.text import parse
from microfold.ir.types import Tensor
from microfold.passes.context import Decision, PassContext
from microfold.reporting.data import build_report
from microfold.transform.simplify.prune_constant_channels import prune_constant_channels
from tests.analysis.networks import networks
from tests.evaluation import random_array

UNIT = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}"
Claims = tuple[Claim, ...]
ROW = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (1, 1))}"

# %a: 0 varies, 1 is -128 = zero point, 2 is 127, 3 varies and is not read.
TEXT = f"""
    graph @g(%x: int8[1,1,3,1] q(0.1, 0)) -> (%y) {{
      %w1 = constant int8[4,1,1,1] q(0.1, 0) [10, 2, 3, 5]
      %b1 = constant int32[4] [0, -900000, 900000, 0]
      %a: int8[1,1,3,4] q(0.1, -128) = conv2d(%x, %w1, %b1) {UNIT}
      %w2 = constant int8[1,1,1,4] q(0.1, 0) [5, 6, 7, 0]
      %b: int8[1,1,3,1] q(2.0, 0) = conv2d(%a, %w2) {UNIT}
      %w3 = constant int8[1,1,3,1] q(0.1, 0) [7, 8, 9]
      %y: int8[1,1,3,1] q(5.0, 0) = conv2d(%b, %w3) {ROW}
    }}
    """


def certify(graph: Graph) -> PruningProof | None:
    decisions: list[Decision] = []
    prune_constant_channels(graph, PassContext(sink=decisions.append))
    return next((d.evidence for d in decisions if isinstance(d.evidence, PruningProof)), None)


@pytest.fixture
def graph() -> Graph:
    return parse(dedent(TEXT))


@pytest.fixture
def proof(graph: Graph) -> PruningProof:
    found = certify(graph)
    assert found is not None
    return found


def test_claims(graph: Graph, proof: PruningProof) -> None:
    (pruned,) = proof.values
    assert pruned.layer == "conv2d"
    assert pruned.value is graph.nodes[0].output
    assert pruned.claims == (
        Claim(1, -128, -128, Reason.CONSTANT),
        Claim(2, 127, 127, Reason.CONSTANT),
        Claim(3, -128, -64, Reason.UNREAD),
    )
    assert proof.channels == 3
    assert check_pruning(graph, proof) == []


def tampered(proof: PruningProof, change: Callable[[tuple[Claim, ...]], tuple[Claim, ...]]) -> PruningProof:
    (pruned,) = proof.values
    return replace(proof, values=(replace(pruned, claims=change(pruned.claims)),))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda c: (replace(c[0], low=-127, high=-127), *c[1:]), "channel 1 is claimed in [-127, -127]"),
        (lambda c: (*c[:2], replace(c[2], high=-100)), "channel 3 is claimed in [-128, -100]"),
        (lambda c: (*c, Claim(0, -128, -128, Reason.CONSTANT)), "channel 0 is claimed in [-128, -128]"),
        (lambda c: (*c, Claim(0, -128, 0, Reason.CONSTANT)), "channel 0 is not constant"),
        (lambda c: (*c, Claim(0, -128, 0, Reason.UNREAD)), "it depends on channel 0 of %a"),
        (lambda c: (*c, Claim(4, -128, -128, Reason.CONSTANT)), "has no channel 4"),
        (lambda c: (replace(c[0], reason=Reason.REPLACED), *c[1:]), "not all of its channels are claimed"),
    ],
)
def test_tampered_claims_are_found(
    graph: Graph,
    proof: PruningProof,
    change: Callable[[Claims], Claims],
    fault: str,
) -> None:
    faults = check_pruning(graph, tampered(proof, change))
    assert any(fault in found for found in faults), faults


def test_other_tampering_is_found(graph: Graph, proof: PruningProof) -> None:
    output = PrunedValue("conv2d", graph.outputs[0], (Claim(0, -128, 127, Reason.UNREAD),))
    faults = check_pruning(graph, replace(proof, values=(*proof.values, output)))
    assert any("leaves the graph" in found for found in faults)
    stranger = PrunedValue("conv2d", graph.inputs[0], ())
    faults = check_pruning(graph, replace(proof, values=(stranger,)))
    assert any("not a value that the graph computes" in found for found in faults)


def test_proof_for_another_network_is_found(proof: PruningProof) -> None:
    """The same shapes, but the bias no longer saturates channel 2, and channel 3 has a reader."""
    text = TEXT.replace("900000, 0]", "9, 0]").replace("[5, 6, 7, 0]", "[5, 6, 7, 1]")
    graph = parse(dedent(text))
    moved = tuple(replace(v, value=graph.nodes[0].output) for v in proof.values)
    faults = check_pruning(graph, replace(proof, values=moved))
    assert any("channel 2 is claimed" in found for found in faults)
    assert any("it depends on channel 3 of %a" in found for found in faults)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=75)
@given(graph=networks())
def test_claims_against_the_reference(graph: Graph) -> None:
    """Every claimed channel, on inputs at both ends and at random."""
    proof = certify(graph)
    if proof is None:
        return
    claims = {pruned.value: pruned.claims for pruned in proof.values}

    def check(node: Node, results: tuple[Tensor, ...]) -> None:
        for value, tensor in zip(node.outputs, results, strict=True):
            rows = tensor.data.reshape(-1, tensor.data.shape[-1] if tensor.data.ndim else 1)
            for claim in claims.get(value, ()):
                column = rows[:, claim.channel]
                assert claim.low <= column.min() <= column.max() <= claim.high

    interpreter, rng = Interpreter(graph), np.random.default_rng(5)
    types = [value.type for value in graph.inputs]
    for end in (0, 1, None, None):
        arrays = [random_array(rng, t) for t in types]
        if end is not None:
            arrays = [
                np.full_like(a, v.type.dtype.range[end]) for a, v in zip(arrays, graph.inputs, strict=True)
            ]
        interpreter.run(*arrays, observe=check)


def test_report(graph: Graph) -> None:
    program = compile_graph(graph, target.load("host"))
    report = build_report(program, None)
    assert json.loads(to_json(report.pruned)) == [
        {
            "graph": "g",
            "macs_before": 33,
            "macs_after": 15,
            "channels": 3,
            "values": [
                {
                    "op": "conv2d",
                    "tensor": "a",
                    "channels": 4,
                    "removed": [
                        {"reason": "constant", "low": -128, "high": -128, "channels": [1]},
                        {"reason": "constant", "low": 127, "high": 127, "channels": [2]},
                        {"reason": "unread", "low": -128, "high": -64, "channels": [3]},
                    ],
                }
            ],
        }
    ]
    assert report.accumulators.proved
    assert report.accumulators.unproved_layers == ()
    assert max(layer.accumulator_bits or 0 for layer in report.layers) == report.accumulators.largest_bits
