from __future__ import annotations

import pytest

from microfold.transform.scales.fold_shift_axis import fold_shift_axis
from tests.transform.axis_graphs import RELU, SAME, WINDOW, Case

case = Case(fold_shift_axis)
pair = Case(fold_shift_axis, "%x: float32[1,3,3,2], %z: float32[1,3,3,2]")

WEIGHTS = "%w = constant float32[2,1,1,2] [1.0, 2.0, 3.0, 4.0]\n"
SHIFT = "%t = constant float32[2] [10.0, 20.0]\n"


@pytest.mark.parametrize(
    "nodes",
    [
        "%y: float32[1,2,2,2] = max_pool2d(%a) {size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 0))}",
        "%y: float32[1,2,3,2] = average_pool2d(%a) {size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 1))}",
        "%y: float32[1,9,2] = reshape(%a) {shape=(1, 9, 2)}",
        "%y: float32[1,2] = mean(%a) {axes=(1, 2), keep_dims=false, out=float32}",
        "%y: float32[1,3,3,2] = add(%x, %a)",
        "%y: float32[1,3,3,2] = sub(%a, %x)",
    ],
)
def test_into_the_bias_before(nodes: str) -> None:
    type, shifted = nodes.split()[1], nodes.replace("%y", "%c")
    case.becomes(
        f"{WEIGHTS}%a: float32[1,3,3,2] = conv2d(%x, %w) {WINDOW}\n"
        f"{shifted}\n{SHIFT}%y: {type} = add(%c, %t)",
        f"{WEIGHTS}%a_bias = constant float32[2] [10.0, 20.0]\n"
        f"%a: float32[1,3,3,2] = conv2d(%x, %w, %a_bias) {WINDOW}\n{nodes}",
    )


def test_negative_branch_takes_the_negative_shift() -> None:
    case.becomes(
        f"""{WEIGHTS}%b = constant float32[2] [1.0, 2.0]
%a: float32[1,3,3,2] = conv2d(%x, %w, %b) {WINDOW}
%c: float32[1,3,3,2] = sub(%x, %a)
{SHIFT}%y: float32[1,3,3,2] = sub(%c, %t)""",
        f"""{WEIGHTS}%b = constant float32[2] [11.0, 22.0]
%a: float32[1,3,3,2] = conv2d(%x, %w, %b) {WINDOW}
%y: float32[1,3,3,2] = sub(%x, %a)""",
    )


def test_parts() -> None:
    case.becomes(
        f"""{WEIGHTS}%a: float32[1,3,3,2] = conv2d(%x, %w) {WINDOW}
%c: float32[1,3,3,4] = concatenate(%a, %x) {{axis=3}}
%t = constant float32[4] [10.0, 20.0, 0.0, 0.0]
%y: float32[1,3,3,4] = add(%c, %t)""",
        f"""{WEIGHTS}%a_bias = constant float32[2] [10.0, 20.0]
%a: float32[1,3,3,2] = conv2d(%x, %w, %a_bias) {WINDOW}
%y: float32[1,3,3,4] = concatenate(%a, %x) {{axis=3}}""",
    )


@pytest.mark.parametrize(
    ("weights", "bias", "node"),
    [
        (
            "float32[2,1,1,2] [1.0, 2.0, 3.0, 4.0]",
            "float32[2] [50.0, 110.0]",
            f"float32[1,3,3,2] = conv2d(%a, %wB) {WINDOW}",
        ),
        (
            "float32[4,1,1,1] [1.0, 2.0, 3.0, 4.0]",
            "float32[4] [10.0, 20.0, 60.0, 80.0]",
            f"float32[1,3,3,4] = conv2d(%a, %wB) {WINDOW}",
        ),
        (
            "float32[1,1,2,4] [1.0, 2.0, 3.0, 4.0, 1.0, 1.0, 1.0, 1.0]",
            "float32[4] [20.0, 30.0, 80.0, 100.0]",
            f"float32[1,3,2,4] = depthwise_conv2d(%a, %wB) {WINDOW}",
        ),
    ],
    ids=["conv2d", "grouped", "depthwise"],
)
def test_into_the_bias_behind(weights: str, bias: str, node: str) -> None:
    case.becomes(
        f"{SHIFT}%a: float32[1,3,3,2] = add(%x, %t)\n%w = constant {weights}\n%y: {node.replace('B', '')}",
        f"%w = constant {weights}\n%y_bias = constant {bias}\n"
        f"%y: {node.replace('B', ', %y_bias').replace('%a', '%x')}",
    )


def test_after_flattening() -> None:
    weights = "%w = constant float32[1,18] [" + ", ".join(["1.0, -1.0"] * 9) + "]\n"
    case.becomes(
        f"""{SHIFT}%a: float32[1,3,3,2] = sub(%x, %t)
%c: float32[1,18] = reshape(%a) {{shape=(1, 18)}}
{weights}%b = constant float32[1] [1.0]
%y: float32[1,1] = fully_connected(%c, %w, %b)""",
        f"""%c: float32[1,18] = reshape(%x) {{shape=(1, 18)}}
{weights}%b = constant float32[1] [91.0]
%y: float32[1,1] = fully_connected(%c, %w, %b)""",
    )


def test_two_become_one() -> None:
    """A shift that cannot go itself takes the others."""
    case.becomes(
        f"""{SHIFT}%a: float32[1,3,3,2] = add(%x, %t)
%s = constant float32[2] [2.0, 3.0]
%b: float32[1,3,3,2] = mul(%a, %s)
%u = constant float32[] [1.0]
%y: float32[1,3,3,2] = add(%b, %u)""",
        """%s = constant float32[2] [2.0, 3.0]
%b: float32[1,3,3,2] = mul(%x, %s)
%u = constant float32[2] [21.0, 61.0]
%y: float32[1,3,3,2] = add(%b, %u)""",
    )


def test_one_of_two_branches() -> None:
    """Of two operands the one that can takes the shift, wherever it stands."""
    pair.becomes(
        f"""%r: float32[1,3,3,2] = clip(%z) {RELU}
{WEIGHTS}%a: float32[1,3,3,2] = conv2d(%x, %w) {WINDOW}
%c: float32[1,3,3,2] = add(%r, %a)
{SHIFT}%y: float32[1,3,3,2] = add(%t, %c)""",
        f"""%r: float32[1,3,3,2] = clip(%z) {RELU}
{WEIGHTS}%a_bias = constant float32[2] [10.0, 20.0]
%a: float32[1,3,3,2] = conv2d(%x, %w, %a_bias) {WINDOW}
%y: float32[1,3,3,2] = add(%r, %a)""",
    )


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (
            f"{WEIGHTS}%y: float32[1,5,5,2] = conv2d(%a, %w) {SAME}",
            "with zeros, without the shift",
        ),
        (
            "%y: float32[1,4,3,2] = pad(%a) {padding=((0, 0), (1, 0), (0, 0), (0, 0)), fill=0.0}",
            "it fills with 0 around the image",
        ),
        (f"%y: float32[1,3,3,2] = clip(%a) {RELU}", "clip %y passes no shifts"),
        ("%y: float32[1,3,3,2] = mul(%a, %x)", "its other factor is not constant"),
        ("%y: float32[1,3,3,2] = reshape(%a) {shape=(1, 3, 3, 2)}", "%y leaves the graph"),
        (
            f"{WEIGHTS}%y: float32[1,6,6,2] = transpose_conv2d(%a, %w) "
            "{strides=(2, 2), offset=(0, 0), size=(6, 6), out=float32}",
            "varies with the position",
        ),
    ],
)
def test_not_forward(nodes: str, reason: str) -> None:
    case.stays(f"{SHIFT}%a: float32[1,3,3,2] = add(%x, %t)\n{nodes}", reason)
    case.stays(f"{SHIFT}%a: float32[1,3,3,2] = add(%x, %t)\n{nodes}", "no node computes %x")


def test_not_backward() -> None:
    convolution = f"{WEIGHTS}%a: float32[1,3,3,2] = conv2d(%x, %w) {WINDOW}\n"
    case.stays(
        f"{convolution}%r: float32[1,3,3,2] = clip(%a) {RELU}\n{SHIFT}%y: float32[1,3,3,2] = add(%r, %t)",
        "clip %r passes no shifts",
    )
    case.stays(
        f"{convolution}%t = constant float32[3,1] [1.0, 2.0, 3.0]\n%y: float32[1,3,3,2] = add(%a, %t)",
        "one shift per channel",
    )
    case.stays(
        f"{convolution}{SHIFT}%y: float32[1,3,3,2] = add(%a, %t)", "the graph returns %a", outputs="%y, %a"
    )
    case.stays(f"{convolution}%y: float32[1,3,3,2] = add(%a, %x)", "")
