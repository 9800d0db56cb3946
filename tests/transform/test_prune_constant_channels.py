from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

from hypothesis import HealthCheck, settings

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.analysis.certificate import Certificate, Reason
from microfold.analysis.check import check_certificate
from microfold.ir.graph import Graph
from microfold.ir.text import parse
from microfold.passes import Decision, PassContext
from microfold.transform.prune_constant_channels import prune_constant_channels
from tests.transform.check import check_rewrite

MADE = sorted((Path(__file__).resolve().parents[1] / "models" / "made").glob("*.tflite"))
ELSEWHERE = Path(os.environ.get("MICROFOLD_MODELS", "."))
UNIT = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}"
SAME = "{strides=(1, 1), dilations=(1, 1), padding=((1, 1), (1, 1))}"

thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=400)


def prune(graph: Graph) -> tuple[Graph, Certificate | None]:
    """The pruned graph, and the proof if there was something to do."""
    decisions: list[Decision] = []
    pruned = prune_constant_channels(graph, PassContext(sink=decisions.append))
    proofs = [d.evidence for d in decisions if isinstance(d.evidence, Certificate)]
    return pruned, proofs[0] if proofs else None


def rewrite(before: str, after: str) -> Certificate:
    """`check_rewrite`, and the certificate proves it."""
    decisions = check_rewrite(prune_constant_channels, before, after)
    (proof,) = [d.evidence for d in decisions if isinstance(d.evidence, Certificate)]
    # The decisions speak of the values of the graph that `check_rewrite` parsed; this is another one.
    graph = parse(dedent(before))
    _, certificate = prune(graph)
    assert certificate is not None
    assert certificate.macs == proof.macs
    assert check_certificate(graph, certificate) == []
    return certificate


def claims(certificate: Certificate) -> list[tuple[str, int, int, int, Reason]]:
    return [
        (pruned.value.name, claim.channel, claim.low, claim.high, claim.reason)
        for pruned in certificate.values
        for claim in pruned.claims
    ]


def test_constant_channel_goes_into_the_bias() -> None:
    certificate = rewrite(
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
    assert claims(certificate) == [
        ("a", 1, -128, -128, Reason.CONSTANT),
        ("a", 2, 127, 127, Reason.CONSTANT),
    ]
    assert certificate.macs == (36, 12)


def test_unread_channels_go_with_what_computes_them() -> None:
    """Channel 1 varies, but nobody has a weight for it behind the depthwise convolution and the pool."""
    certificate = rewrite(
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %a: int8[1,2,2,2] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %w2 = constant int8[1,3,3,2] q(axis=3, scales=[0.5, 0.25], zero_points=0) dense<AQIBAgECAQIBAgECAQIBAgEC>
          %b2 = constant int32[2] [4, 6]
          %b: int8[1,2,2,2] q(0.1, 0) = depthwise_conv2d(%a, %w2, %b2) {SAME} | clip() {{minimum=0.0, maximum=inf}}
          %c: int8[1,1,1,2] q(0.1, 0) = average_pool2d(%b) {{size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 0))}}
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
          %b: int8[1,2,2,1] q(0.1, 0) = depthwise_conv2d(%a, %w2, %b2) {SAME} | clip() {{minimum=0.0, maximum=inf}}
          %c: int8[1,1,1,1] q(0.1, 0) = average_pool2d(%b) {{size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 0))}}
          %d: int8[1,1] q(0.1, 0) = reshape(%c) {{shape=(1, 1)}}
          %w3 = constant int8[1,1] q(0.1, 0) [9]
          %y: int8[1,1] q(0.1, 0) = fully_connected(%d, %w3)
        }}
        """,
    )
    assert {(name, reason) for name, *_, reason in claims(certificate)} == {
        (name, Reason.UNREAD) for name in "abcd"
    }


def test_both_branches_of_a_sum_lose_a_channel() -> None:
    rewrite(
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %a: int8[1,2,2,2] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %w2 = constant int8[2,1,1,2] q(0.1, 0) [3, 4, 5, 6]
          %b: int8[1,2,2,2] q(0.1, 0) = conv2d(%a, %w2) {UNIT}
          %c: int8[1,2,2,2] q(0.2, 0) = add(%a, %b)
          %k = constant int8[2] q(0.1, 0) [7, 8]
          %d: int8[1,2,2,2] q(0.2, 0) = mul(%c, %k)
          %w3 = constant int8[1,1,1,2] q(0.1, 0) [0, 9]
          %y: int8[1,2,2,1] q(0.1, 0) = conv2d(%d, %w3) {UNIT}
        }}
        """,
        f"""
        graph @g(%x: int8[1,2,2,1] q(0.1, 0)) -> (%y) {{
          %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 2]
          %a: int8[1,2,2,2] q(0.1, 0) = conv2d(%x, %w1) {UNIT}
          %w2 = constant int8[2,1,1,2] q(0.1, 0) [3, 4, 5, 6]
          %b: int8[1,2,2,2] q(0.1, 0) = conv2d(%a, %w2) {UNIT}
          %c: int8[1,2,2,2] q(0.2, 0) = add(%a, %b)
          %k = constant int8[2] q(0.1, 0) [7, 8]
          %d: int8[1,2,2,2] q(0.2, 0) = mul(%c, %k)
          %w3 = constant int8[1,1,1,2] q(0.1, 0) [0, 9]
          %y: int8[1,2,2,1] q(0.1, 0) = conv2d(%d, %w3) {UNIT}
        }}
        """,
    )
