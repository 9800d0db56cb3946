from __future__ import annotations

import os
import time
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.analysis.check_pruning import check_pruning
from microfold.analysis.pruning_proof import PruningProof, Reason
from microfold.errors import UnsupportedModelError
from microfold.frontend import tflite
from microfold.ir.graph import Graph, verify
from microfold.ir.interpret import Interpreter
from microfold.ir.text import parse, to_text
from microfold.passes.context import Decision, PassContext
from microfold.pipeline import optimize
from microfold.transform.simplify.prune_constant_channels import prune_constant_channels
from microfold.verification.verify import input_sets
from tests.analysis.networks import networks
from tests.evaluation import assert_same_meaning
from tests.sampling import sampled
from tests.transform.check import check_declined, check_rewrite

MADE = sorted((Path(__file__).resolve().parents[2] / "models" / "made").glob("*.tflite"))
ELSEWHERE = Path(os.environ.get("MICROFOLD_MODELS", "."))
UNPRUNED = PassContext(disabled_pass=["prune_constant_channels"])
UNIT = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}"
BYTES = "dense<AQIBAgECAQIBAgECAQIBAgEC>"
RELU = "clip() {minimum=0.0, maximum=inf}"
POOL = "{size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 0))}"
SAME = "{strides=(1, 1), dilations=(1, 1), padding=((1, 1), (1, 1))}"

thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)


def prune(graph: Graph, block: int = 1) -> tuple[Graph, PruningProof | None]:
    """The pruned graph, and the proof if there was something to do."""
    decisions: list[Decision] = []
    pruned = prune_constant_channels(graph, PassContext(channel_block=block, sink=decisions.append))
    proofs = [d.evidence for d in decisions if isinstance(d.evidence, PruningProof)]
    return pruned, proofs[0] if proofs else None


def rewrite(before: str, after: str) -> PruningProof:
    """`check_rewrite`, and the proof proves it."""
    decisions = check_rewrite(prune_constant_channels, before, after)
    (proof,) = [d.evidence for d in decisions if isinstance(d.evidence, PruningProof)]
    # The decisions speak of the values of the graph that `check_rewrite` parsed; this is another one.
    graph = parse(dedent(before))
    _, proof = prune(graph)
    assert proof is not None
    assert proof.macs == proof.macs
    assert check_pruning(graph, proof) == []
    return proof


def claims(proof: PruningProof) -> list[tuple[str, int, int, int, Reason]]:
    return [
        (pruned.value.name, claim.channel, claim.low, claim.high, claim.reason)
        for pruned in proof.values
        for claim in pruned.claims
    ]


def test_constant_channel_goes_into_the_bias() -> None:
    proof = rewrite(
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[3,1,1,1] q(axis=0, scales=[0.1, 0.2, 0.3], zero_points=0) [1, 2, 3]
          %b1 = constant int32[3] [5, -100000, 100000]
          %a: int8[1,2,2,3] q(0.1, -128) = conv2d(%x, %w1, %b1) {UNIT}
          %w2 = constant int8[2,1,1,3] q(0.1, 0) [3, 5, 7, -1, -2, -4]
          %y: int8[1,2,2,2] q(0.4, 0) = conv2d(%a, %w2) {UNIT}
        }}
        """,
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[1,1,1,1] q(axis=0, scales=[0.1], zero_points=0) [1]
          %b1 = constant int32[1] [5]
          %a: int8[1,2,2,1] q(0.1, -128) = conv2d(%x, %w1, %b1) {UNIT}
          %w2 = constant int8[2,1,1,1] q(0.1, 0) [3, -1]
          %y_bias = constant int32[2] [1785, -1020]
          %y: int8[1,2,2,2] q(0.4, 0) = conv2d(%a, %w2, %y_bias) {UNIT}
        }}
        """,
    )
    # 7 * (127 + 128) and -4 * 255; channel 1 is the zero point and adds nothing.
    assert claims(proof) == [
        ("a", 1, -128, -128, Reason.CONSTANT),
        ("a", 2, 127, 127, Reason.CONSTANT),
    ]
    assert proof.macs == (36, 12)


def test_unread_channels_go_with_what_computes_them() -> None:
    """Channel 1 varies, but nobody has a weight for it behind the depthwise convolution and the pool."""
    proof = rewrite(
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %a: int8[1,2,2,2] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %w2 = constant int8[1,3,3,2] q(axis=3, scales=[0.5, 0.2], zero_points=0) {BYTES}
          %b2 = constant int32[2] [4, 6]
          %b: int8[1,2,2,2] q(0.1, 0) = depthwise_conv2d(%a, %w2, %b2) {SAME} | {RELU}
          %c: int8[1,1,1,2] q(0.1, 0) = average_pool2d(%b) {POOL}
          %d: int8[1,2] q(0.1, 0) = reshape(%c) {{shape=(1, 2)}}
          %w3 = constant int8[1,2] q(0.1, 0) [9, 0]
          %y: int8[1,1] q(0.1, 0) = fully_connected(%d, %w3)
        }}
        """,
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[1,1,1,1] q(0.1, 0) [1]
          %a: int8[1,2,2,1] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %w2 = constant int8[1,3,3,1] q(axis=3, scales=[0.5], zero_points=0) [1, 1, 1, 1, 1, 1, 1, 1, 1]
          %b2 = constant int32[1] [4]
          %b: int8[1,2,2,1] q(0.1, 0) = depthwise_conv2d(%a, %w2, %b2) {SAME} | {RELU}
          %c: int8[1,1,1,1] q(0.1, 0) = average_pool2d(%b) {POOL}
          %d: int8[1,1] q(0.1, 0) = reshape(%c) {{shape=(1, 1)}}
          %w3 = constant int8[1,1] q(0.1, 0) [9]
          %y: int8[1,1] q(0.1, 0) = fully_connected(%d, %w3)
        }}
        """,
    )
    assert {(name, reason) for name, *_, reason in claims(proof)} == {
        (name, Reason.UNREAD) for name in "abcd"
    }


def residual(weights: str) -> str:
    """A block whose sum's first channel is not read behind it; `weights` mix the channels inside."""
    return f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %a: int8[1,2,2,2] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %w2 = constant int8[2,1,1,2] q(0.1, 0) {weights}
          %b: int8[1,2,2,2] q(0.1, 0) = conv2d(%a, %w2) {UNIT}
          %c: int8[1,2,2,2] q(0.2, 0) = add(%a, %b)
          %k = constant int8[2] q(0.1, 0) [7, 8]
          %d: int8[1,2,2,2] q(0.2, 0) = mul(%c, %k)
          %w3 = constant int8[1,1,1,2] q(0.1, 0) [0, 9]
          %y: int8[1,2,2,1] q(0.1, 0) = conv2d(%d, %w3) {UNIT}
        }}
        """


def test_both_branches_of_a_sum_lose_a_channel() -> None:
    """The first channels of %a and %b need only each other."""
    rewrite(
        residual("[3, 4, 0, 6]"),
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[1,1,1,1] q(0.1, 0) [2]
          %a: int8[1,2,2,1] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %w2 = constant int8[1,1,1,1] q(0.1, 0) [6]
          %b: int8[1,2,2,1] q(0.1, 0) = conv2d(%a, %w2) {UNIT}
          %c: int8[1,2,2,1] q(0.2, 0) = add(%a, %b)
          %k = constant int8[1] q(0.1, 0) [8]
          %d: int8[1,2,2,1] q(0.2, 0) = mul(%c, %k)
          %w3 = constant int8[1,1,1,1] q(0.1, 0) [9]
          %y: int8[1,2,2,1] q(0.1, 0) = conv2d(%d, %w3) {UNIT}
        }}
        """,
    )


def test_sum_with_a_branch_that_is_read_keeps_its_channel() -> None:
    check_declined(prune_constant_channels, residual("[3, 4, 5, 6]"))


def test_concatenation_loses_channels_and_operands() -> None:
    """%b is not read at all; %c is the second part, then the first."""
    rewrite(
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %a: int8[1,2,2,2] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %w2 = constant int8[1,1,1,1] q(0.1, 0) [3]
          %b: int8[1,2,2,1] q(0.1, 0) = conv2d(%x, %w2) {UNIT}
          %c: int8[1,2,2,4] q(0.1, 0) = concatenate(%b, %a, %x) {{axis=3}}
          %p: int8[1,3,2,4] q(0.1, 0) = pad(%c) {{padding=((0, 0), (1, 0), (0, 0), (0, 0)), fill=0.0}}
          %w3 = constant int8[1,1,1,4] q(0.1, 0) [0, 0, 5, 6]
          %y: int8[1,3,2,1] q(0.1, 0) = conv2d(%p, %w3) {UNIT}
        }}
        """,
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[1,1,1,1] q(0.1, 0) [2]
          %a: int8[1,2,2,1] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %c: int8[1,2,2,2] q(0.1, 0) = concatenate(%a, %x) {{axis=3}}
          %p: int8[1,3,2,2] q(0.1, 0) = pad(%c) {{padding=((0, 0), (1, 0), (0, 0), (0, 0)), fill=0.0}}
          %w3 = constant int8[1,1,1,2] q(0.1, 0) [5, 6]
          %y: int8[1,3,2,1] q(0.1, 0) = conv2d(%p, %w3) {UNIT}
        }}
        """,
    )


def test_concatenation_of_one_operand_is_that_operand() -> None:
    rewrite(
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %a: int8[1,2,2,2] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %b: int8[1,2,2,2] q(0.1, 0) = clip(%a) {{minimum=0.0, maximum=inf}}
          %c: int8[1,2,2,4] q(0.1, 0) = concatenate(%a, %b) {{axis=3}}
          %w3 = constant int8[1,1,1,4] q(0.1, 0) [5, 6, 0, 0]
          %y: int8[1,2,2,1] q(0.1, 0) = conv2d(%c, %w3) {UNIT}
        }}
        """,
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %a: int8[1,2,2,2] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %w3 = constant int8[1,1,1,2] q(0.1, 0) [5, 6]
          %y: int8[1,2,2,1] q(0.1, 0) = conv2d(%a, %w3) {UNIT}
        }}
        """,
    )


def test_flattened_image_loses_a_channel_at_every_position() -> None:
    rewrite(
        f"""
        graph @g(%x: int8[1,1,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %b1 = constant int32[2] [-90000, 0]
          %a: int8[1,1,2,2] q(0.1, -128) = conv2d(%x, %w1, %b1) {UNIT}
          %d: int8[1,4] q(0.1, -128) = reshape(%a) {{shape=(1, 4)}}
          %w3 = constant int8[1,4] q(0.1, 2) [9, 8, 7, 6]
          %y: int8[1,1] q(0.1, 0) = fully_connected(%d, %w3)
        }}
        """,
        f"""
        graph @g(%x: int8[1,1,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[1,1,1,1] q(0.1, 0) [2]
          %b1 = constant int32[1] [0]
          %a: int8[1,1,2,1] q(0.1, -128) = conv2d(%x, %w1, %b1) {UNIT}
          %d: int8[1,2] q(0.1, -128) = reshape(%a) {{shape=(1, 2)}}
          %w3 = constant int8[1,2] q(0.1, 2) [8, 6]
          %y: int8[1,1] q(0.1, 0) = fully_connected(%d, %w3)
        }}
        """,
    )


def test_value_that_is_constant_becomes_data() -> None:
    """Its reader needs both channels for the other branch; what computed it goes."""
    proof = rewrite(
        f"""
        graph @g(%x: int8[1,2,2,2] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,2] q(0.1, 0) [1, 2, 3, 4]
          %b1 = constant int32[2] [90000, -90000]
          %a: int8[1,2,2,2] q(0.1, 0) = conv2d(%x, %w1, %b1) {UNIT}
          %y: int8[1,2,2,2] q(0.1, 0) = add(%x, %a)
        }}
        """,
        """
        graph @g(%x: int8[1,2,2,2] q(0.1, 0)) -> (%y) {
          %a = constant int8[1,2,2,2] q(0.1, 0) [127, -128, 127, -128, 127, -128, 127, -128]
          %y: int8[1,2,2,2] q(0.1, 0) = add(%x, %a)
        }
        """,
    )
    assert {reason for *_, reason in claims(proof)} == {Reason.REPLACED}


def test_large_constant_value_is_broadcast_by_its_reader() -> None:
    graph = parse(
        f"""
        graph @g(%x: int8[1,32,32,2] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,2] q(0.1, 0) [1, 2, 3, 4]
          %b1 = constant int32[2] [90000, -90000]
          %a: int8[1,32,32,2] q(0.1, 0) = conv2d(%x, %w1, %b1) {UNIT}
          %y: int8[1,32,32,2] q(0.1, 0) = add(%a, %x)
        }}
        """
    )
    pruned, proof = prune(graph)
    (node,) = pruned.nodes
    assert node.inputs[0] is not None
    assert node.inputs[0].type.shape == (1, 1, 1, 2)
    assert_same_meaning(graph, pruned)
    assert proof is not None
    assert check_pruning(graph, proof) == []


def test_only_one_operand_of_a_large_value_is_broadcast() -> None:
    """With both of them shrunk, the result would shrink, too."""
    graph = parse(
        f"""
        graph @g(%x: int8[1,32,32,2] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,2] q(0.1, 0) [1, 2, 3, 4]
          %b1 = constant int32[2] [90000, -90000]
          %a: int8[1,32,32,2] q(0.1, 0) = conv2d(%x, %w1, %b1) {UNIT}
          %b: int8[1,32,32,2] q(0.1, 0) = clip(%a) {{minimum=0.0, maximum=1.0}}
          %y: int8[1,32,32,2] q(0.3, 0) = mul(%a, %b)
        }}
        """
    )
    pruned, proof = prune(graph)
    verify(pruned)
    assert_same_meaning(graph, pruned)
    assert proof is not None
    assert check_pruning(graph, proof) == []
    assert min(value.type.size for value in pruned.constants) == 2


def test_output_without_information_is_data() -> None:
    rewrite(
        """
        graph @g(%x: int8[1,2] q(0.1, 0)) -> (%y) {
          %w = constant int8[1,2] q(0.1, 0) [0, 0]
          %b = constant int32[1] [300]
          %y: int8[1,1] q(0.1, 0) = fully_connected(%x, %w, %b)
        }
        """,
        """
        graph @g(%x: int8[1,2] q(0.1, 0)) -> (%y) {
          %y = constant int8[1,1] q(0.1, 0) [30]
        }
        """,
    )


def bordered(zero_point: int, reader: str) -> str:
    """Channel 0 of %a is always -128; the window behind it is padded."""
    return f"""
        graph @g(%x: int8[1,3,3,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %b1 = constant int32[2] [-900000, 0]
          %a: int8[1,3,3,2] q(0.1, {zero_point}) = conv2d(%x, %w1, %b1) {UNIT}
          {reader}
        }}
        """


FULL = f"""%w2 = constant int8[1,1,3,2] q(0.1, 0) [1, 4, 1, 5, 1, 6]
          %y: int8[1,5,3,1] q(1.0, 0) = conv2d(%a, %w2) {SAME}"""
ROW = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (1, 1))}"
DEPTHWISE = f"""%w2 = constant int8[1,1,3,2] q(0.1, 0) [1, 4, 1, 5, 1, 6]
          %b: int8[1,3,3,2] q(1.0, 0) = depthwise_conv2d(%a, %w2) {ROW}
          %w3 = constant int8[1,1,1,2] q(0.1, 0) [7, 8]
          %y: int8[1,3,3,1] q(0.1, 0) = conv2d(%b, %w3) {UNIT}"""


@pytest.mark.parametrize("reader", [FULL, DEPTHWISE], ids=["conv2d", "depthwise"])
def test_zero_point_in_front_of_padding_goes(reader: str) -> None:
    graph = parse(dedent(bordered(-128, reader)))
    pruned, proof = prune(graph)
    assert pruned.nodes[0].output.type.shape[3] == 1
    assert_same_meaning(graph, pruned, calls=8)
    assert proof is not None
    assert check_pruning(graph, proof) == []


def test_another_constant_in_front_of_padding_stays() -> None:
    """Inside, three taps see -128; at the border, two: no bias is right for both."""
    check_declined(prune_constant_channels, bordered(0, FULL), "its padding cuts them off at the border")
    graph = check_declined(prune_constant_channels, bordered(0, DEPTHWISE), "other channels")
    # The depthwise result differs between border and interior: it is not constant.
    results = Interpreter(graph.with_nodes(graph.nodes))
    assert results.run(np.zeros((1, 3, 3, 1), np.int8))[0].std() > 0


def test_constant_whose_taps_are_never_cut_off_goes() -> None:
    """Only the centre column has a weight for channel 0, and no position has it outside."""
    reader = f"""%w2 = constant int8[1,1,3,2] q(0.1, 0) [0, 4, 1, 5, 0, 6]
          %y: int8[1,3,3,1] q(1.0, 0) = conv2d(%a, %w2) {ROW}"""
    graph = parse(dedent(bordered(0, reader)))
    pruned, proof = prune(graph)
    assert pruned.nodes[0].output.type.shape[3] == 1
    assert_same_meaning(graph, pruned, calls=8)
    assert proof is not None
    assert check_pruning(graph, proof) == []


def test_depthwise_result_that_saturates_everywhere_goes() -> None:
    """-128 and padding give different sums, but all of them saturate."""
    reader = f"""%w2 = constant int8[1,1,3,2] q(0.1, 0) [9, 4, 9, 5, 9, 6]
          %b2 = constant int32[2] [-99999, 0]
          %b: int8[1,3,3,2] q(0.1, 0) = depthwise_conv2d(%a, %w2, %b2) {ROW}
          %w3 = constant int8[1,1,1,2] q(0.1, 0) [7, 8]
          %y: int8[1,3,3,1] q(0.1, 0) = conv2d(%b, %w3) {UNIT}"""
    graph = parse(dedent(bordered(0, reader)))
    pruned, _ = prune(graph)
    assert [node.outputs[0].type.shape[3] for node in pruned.nodes] == [1, 1, 1]
    assert_same_meaning(graph, pruned, calls=8)


def test_bias_that_would_leave_int32_stays() -> None:
    text = f"""
        graph @g(%x: int8[1,1,1,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %b1 = constant int32[2] [900000, 0]
          %a: int8[1,1,1,2] q(0.1, 0) = conv2d(%x, %w1, %b1) {UNIT}
          %w2 = constant int8[1,1,1,2] q(0.1, 0) [127, 1]
          %b2 = constant int32[1] [2147483000]
          %y: int8[1,1,1,1] q(8000000.0, 0) = conv2d(%a, %w2, %b2) {UNIT}
        }}
        """
    check_declined(prune_constant_channels, text, "constant channels stay")


@pytest.mark.parametrize(
    "reader",
    [
        "%y: int8[1,1,1,2] q(0.00390625, -128) = softmax(%a) {beta=1.0}",
        "%y: int8[1,2,1,1] q(0.1, 0) = transpose(%a) {permutation=(0, 3, 2, 1)}",
        "%y: int8[1,1,1,2] q(0.1, 0) = clip(%a) {minimum=-3.0, maximum=3.0}",
    ],
)
def test_readers_that_need_everything(reader: str) -> None:
    text = f"""
        graph @g(%x: int8[1,1,1,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %b1 = constant int32[2] [900000, 0]
          %a: int8[1,1,1,2] q(0.1, 0) = conv2d(%x, %w1, %b1) {UNIT}
          {reader}
        }}
        """
    check_declined(prune_constant_channels, text, "1 constant channels stay")


def test_other_readers_keep_a_channel() -> None:
    """One reader could take the constant into its bias, the other is an output."""
    text = f"""
        graph @g(%x: int8[1,1,1,1] q(0.1, 0)) -> (%y, %a) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %b1 = constant int32[2] [900000, 0]
          %a: int8[1,1,1,2] q(0.1, 0) = conv2d(%x, %w1, %b1) {UNIT}
          %w2 = constant int8[1,1,1,2] q(0.1, 0) [5, 6]
          %y: int8[1,1,1,1] q(0.1, 0) = conv2d(%a, %w2) {UNIT}
        }}
        """
    check_declined(prune_constant_channels, text, "the value leaves the graph")


def test_blocks_of_channels() -> None:
    """One of eight channels is no block less; five of eight are."""
    text = f"""
        graph @g(%x: int8[1,1,1,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[8,1,1,1] q(0.1, 0) [9, 8, 7, 6, 5, 4, 3, 2]
          %a: int8[1,1,1,8] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %w2 = constant int8[1,1,1,8] q(1.0, 0) WEIGHTS
          %y: int8[1,1,1,1] q(0.1, 0) = conv2d(%a, %w2) {UNIT}
        }}
        """
    decisions: list[Decision] = []
    context = PassContext(channel_block=4, sink=decisions.append)
    few = parse(dedent(text.replace("WEIGHTS", "[1, 2, 0, 4, 5, 6, 7, 8]")))
    assert prune_constant_channels(few, context) is few
    many = parse(dedent(text.replace("WEIGHTS", "[0, 0, 0, 0, 0, 6, 7, 8]")))
    pruned = prune_constant_channels(many, context)
    assert pruned.nodes[0].output.type.shape[3] == 3
    assert_same_meaning(many, pruned)
    assert prune_constant_channels(pruned, context) is pruned


def test_floats_are_left_alone() -> None:
    text = """
        graph @g(%x: float32[1,2]) -> (%y) {
          %w = constant float32[1,2] [0.0, 1.0]
          %a: float32[1,1] = fully_connected(%x, %w)
          %y: float32[1,1] = fully_connected(%a, %z)
        }
        """.replace("%z", "%a")
    check_declined(prune_constant_channels, text)


@thorough
@given(graph=networks(), block=st.sampled_from((1, 1, 2, 4)))
def test_meaning_idempotence_and_proof(graph: Graph, block: int) -> None:
    pruned, proof = prune(graph, block)
    verify(pruned)
    assert_same_meaning(graph, pruned)
    assert prune_constant_channels(pruned, PassContext(channel_block=block)) is pruned
    assert (proof is None) == (pruned is graph)
    if proof is not None:
        assert check_pruning(graph, proof) == []


@pytest.mark.slow
@thorough
@given(graph=networks())
def test_in_the_pipeline(graph: Graph) -> None:
    result = optimize(graph)
    verify(result)
    assert_same_meaning(graph, result)
    assert to_text(optimize(result)) == to_text(result)


def extremes_and_noise(graph: Graph, count: int) -> list[list[np.ndarray]]:
    sets = input_sets([value.type for value in graph.inputs], count - 2)
    bounds = [
        [np.full(v.type.shape, v.type.dtype.range[i], v.type.dtype.numpy) for v in graph.inputs]
        for i in (0, 1)
    ]
    return [*bounds, *(list(arrays) for arrays in sets)]


def assert_outputs_unchanged(before: Graph, after: Graph, inputs: list[list[np.ndarray]]) -> None:
    first, second = Interpreter(before), Interpreter(after)
    for arrays in inputs:
        for expected, given_ in zip(first.run(*arrays), second.run(*arrays), strict=True):
            np.testing.assert_array_equal(given_, expected)


def elsewhere(name: str) -> Graph:
    path = ELSEWHERE / f"{name}.tflite"
    if not path.is_file():
        pytest.skip(f"MICROFOLD_MODELS has no {name}.tflite")
    return tflite.load(path)


@pytest.mark.slow
def test_visual_wake_words() -> None:
    graph = optimize(elsewhere("mlperf_tiny/vww_int8"), UNPRUNED)
    start = time.perf_counter()
    pruned, proof = prune(graph)
    seconds = time.perf_counter() - start
    assert proof is not None
    assert proof.macs[0] == 7489664
    assert proof.macs[1] <= 3727313
    channels = sum(node.outputs[0].type.shape[-1] for node in pruned.nodes if node.macs())
    # Weights and biases, and for each channel a multiplier and a shift.
    assert sum(array.nbytes for array in pruned.constants.values()) + 5 * channels <= 38 * 1024
    assert seconds < 2  # 0.1 s on an idle machine
    assert_outputs_unchanged(graph, pruned, extremes_and_noise(graph, 34))
    assert check_pruning(graph, proof) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "mlperf_tiny/ic_int8",
        "mlperf_tiny/kws_int8",
        "mlperf_tiny/ad_int8",
        "mlperf_tiny/sww_int8",
        "tflm/person_detect",
        "openmv/fomo_face_detection",
    ],
)
def test_other_models_keep_their_outputs(name: str) -> None:
    graph = optimize(elsewhere(name), UNPRUNED)
    pruned, proof = prune(graph)
    assert_outputs_unchanged(graph, pruned, extremes_and_noise(graph, 4))
    if proof is not None:
        assert check_pruning(graph, proof) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", sampled(MADE, 3), ids=lambda path: path.stem)
def test_bundled_models_keep_their_outputs(path: Path) -> None:
    try:
        graph = optimize(tflite.load(path), UNPRUNED)
    except UnsupportedModelError:
        pytest.skip("it is not supported")
    pruned, proof = prune(graph)
    assert_same_meaning(graph, pruned)
    if proof is not None:
        assert check_pruning(graph, proof) == []
