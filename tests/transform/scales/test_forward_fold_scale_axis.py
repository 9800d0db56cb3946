from __future__ import annotations

import pytest

from microfold.transform.scales.forward_fold_scale_axis import forward_fold_scale_axis
from tests.transform.axis_graphs import RELU, SAME, WINDOW, Case

case = Case(forward_fold_scale_axis)
row = Case(forward_fold_scale_axis, "%x: float32[1,2]")
pair = Case(forward_fold_scale_axis, "%x: float32[1,3,3,2], %z: float32[1,3,3,2]")

SCALE = "%s = constant float32[2] [2.0, 3.0]\n%a: float32[1,3,3,2] = mul(%x, %s)\n"
WEIGHTS = "%w = constant float32[2,1,1,2] [1.0, 2.0, 3.0, 4.0]\n"
SCALED = "%w = constant float32[2,1,1,2] [2.0, 6.0, 6.0, 12.0]\n"
BIAS = "%b = constant float32[2] [0.5, -1.0]\n"


def test_convolution() -> None:
    decisions = case.becomes(
        f"{SCALE}{WEIGHTS}{BIAS}%y: float32[1,3,3,2] = conv2d(%a, %w, %b) {WINDOW}",
        f"{SCALED}{BIAS}%y: float32[1,3,3,2] = conv2d(%x, %w, %b) {WINDOW}",
    )
    assert [str(decision) for decision in decisions] == [
        "forward_fold_scale_axis: mul %a: its scale 2 to 3 along axis 3 goes into conv2d %y"
    ]


def test_padding_by_zeros_has_any_scale() -> None:
    weights = "%w = constant float32[1,3,3,2] [" + ", ".join(["{0}, {1}"] * 9) + "]\n"
    case.becomes(
        f"{SCALE}{weights.format('1.0', '-1.0')}%y: float32[1,3,3,1] = conv2d(%a, %w) {SAME}",
        f"{weights.format('2.0', '-3.0')}%y: float32[1,3,3,1] = conv2d(%x, %w) {SAME}",
    )


@pytest.mark.parametrize(
    ("scale", "node", "scaled"),
    [
        ("float32[] [2.0]", "mul(%s, %x)", "[2.0, 4.0, 6.0, 8.0]"),
        ("float32[1,1,1,2] [0.0, -1.0]", "mul(%x, %s)", "[0.0, -2.0, 0.0, -4.0]"),
        ("float32[2] [0.5, 0.25]", "div(%x, %s)", "[2.0, 8.0, 6.0, 16.0]"),
    ],
)
def test_forms_of_a_scale(scale: str, node: str, scaled: str) -> None:
    convolution = f"%y: float32[1,3,3,2] = conv2d(%a, %w) {WINDOW}"
    case.becomes(
        f"%s = constant {scale}\n%a: float32[1,3,3,2] = {node}\n{WEIGHTS}{convolution}",
        f"%w = constant float32[2,1,1,2] {scaled}\n{convolution.replace('%a', '%x')}",
    )


@pytest.mark.parametrize(
    ("nodes", "weights", "scaled", "last"),
    [
        (
            f"%c: float32[1,3,3,2] = clip(%a) {RELU}",
            "float32[1,1,1,2] [1.0, 2.0]",
            "float32[1,1,1,2] [2.0, 6.0]",
            f"float32[1,3,3,1] = conv2d(%c, %w) {WINDOW}",
        ),
        (
            "%t = constant float32[2] T\n%c: float32[1,3,3,2] = add(%a, %t)",
            "float32[1,1,1,2] [1.0, 2.0]",
            "float32[1,1,1,2] [2.0, 6.0]",
            f"float32[1,3,3,1] = conv2d(%c, %w) {WINDOW}",
        ),
        (
            "%c: float32[1,2,2,2] = max_pool2d(%a) {size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 0))}",
            "float32[1,1,1,2] [1.0, 2.0]",
            "float32[1,1,1,2] [2.0, 6.0]",
            f"float32[1,2,2,1] = conv2d(%c, %w) {WINDOW}",
        ),
        (
            "%p: float32[1,4,3,2] = pad(%a) {padding=((0, 0), (1, 0), (0, 0), (0, 0)), fill=-inf}\n"
            "%c: float32[1,3,2,2] = max_pool2d(%p) {size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 0))}",
            "float32[1,1,1,2] [1.0, 2.0]",
            "float32[1,1,1,2] [2.0, 6.0]",
            f"float32[1,3,2,1] = conv2d(%c, %w) {WINDOW}",
        ),
        (
            "%c: float32[1,3,3,4] = pad(%a) {padding=((0, 0), (0, 0), (0, 0), (1, 1)), fill=0.0}",
            "float32[1,1,1,4] [1.0, 2.0, 3.0, 4.0]",
            "float32[1,1,1,4] [1.0, 4.0, 9.0, 4.0]",
            f"float32[1,3,3,1] = conv2d(%c, %w) {WINDOW}",
        ),
        (
            "%c: float32[1,2] = mean(%a) {axes=(1, 2), keep_dims=false, out=float32}",
            "float32[1,2] [1.0, 2.0]",
            "float32[1,2] [2.0, 6.0]",
            "float32[1,1] = fully_connected(%c, %w)",
        ),
        (
            "%d: float32[1,3,3,2] = leaky_relu(%a) {alpha=0.1, out=float32}\n"
            "%c: float32[1,18] = reshape(%d) {shape=(1, 18)}",
            "float32[1,18] [" + ", ".join(["1.0, 2.0"] * 9) + "]",
            "float32[1,18] [" + ", ".join(["2.0, 6.0"] * 9) + "]",
            "float32[1,1] = fully_connected(%c, %w)",
        ),
        (
            "%d: float32[2,3,3,1] = transpose(%a) {permutation=(3, 1, 2, 0)}\n"
            "%c: float32[1,18] = reshape(%d) {shape=(1, 18)}",
            "float32[1,18] [" + ", ".join(["1.0"] * 18) + "]",
            "float32[1,18] [" + ", ".join(["2.0"] * 9 + ["3.0"] * 9) + "]",
            "float32[1,1] = fully_connected(%c, %w)",
        ),
        (
            "%c: float32[1,3,3,1] = strided_slice(%a) "
            "{begin=(0, 0, 0, 1), size=(1, 3, 3, 1), strides=(1, 1, 1, 1)}",
            "float32[1,1,1,1] [2.0]",
            "float32[1,1,1,1] [6.0]",
            f"float32[1,3,3,1] = conv2d(%c, %w) {WINDOW}",
        ),
    ],
    ids=["relu", "add", "max_pool", "pad_by_infinity", "pad", "mean", "flatten", "transpose", "slice"],
)
def test_through(nodes: str, weights: str, scaled: str, last: str) -> None:
    case.becomes(
        f"{SCALE}{nodes.replace('T', '[2.0, 30.0]')}\n%w = constant {weights}\n%y: {last}",
        f"{nodes.replace('T', '[1.0, 10.0]').replace('%a', '%x')}\n%w = constant {scaled}\n%y: {last}",
    )


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ("%y: float32[1,3,3,2] = clip(%a) {minimum=0.0, maximum=6.0}", "it clips at 6"),
        ("%y: float32[1,3,3,2] = tanh(%a) {out=float32}", "tanh %y passes no scales"),
        ("%y: float32[1,3,3,2] = add(%a, %x)", "its other branch does not have this scale"),
        (f"%y: float32[1,3,3,2] = clip(%a) {RELU}", "%y leaves the graph"),
        ("%y: float32[1,1,3,2] = mean(%m) {axes=(1,), keep_dims=true, out=float32}", "along axis 1"),
        ("%y: float32[1,3,3,1] = conv2d(%m, %v) " + WINDOW, "varies along axis 1"),
        ("%y: float32[1,3,3,1] = conv2d(%x, %n) " + WINDOW, "as weights or bias"),
        (f"%c: float32[1,3,3,2] = clip(%n2) {RELU}\n%y: float32[1,3,3,1] = conv2d(%c, %v) {WINDOW}", "is -1"),
        (
            "%c: float32[1,3,3,2] = add(%q, %t)\n%y: float32[1,3,3,1] = conv2d(%c, %v) " + WINDOW,
            "a scale of 0",
        ),
    ],
)
def test_not_through(nodes: str, reason: str) -> None:
    before = {
        "%m": "%f = constant float32[3,1,1] [1.0, 2.0, 3.0]\n%m: float32[1,3,3,2] = mul(%x, %f)\n",
        "%n2": "%f = constant float32[] [-1.0]\n%n2: float32[1,3,3,2] = mul(%x, %f)\n",
        "%n)": "%f = constant float32[] [2.0]\n%n: float32[1,1,1,2] = mul(%k, %f)\n",
        "%q": "%f = constant float32[2] [0.0, 1.0]\n%q: float32[1,3,3,2] = mul(%x, %f)\n",
    }
    start = next((text for name, text in before.items() if name in nodes), SCALE)
    constants = "%v = constant float32[1,1,1,2] [1.0, 2.0]\n%t = constant float32[2] [1.0, 2.0]\n"
    Case(forward_fold_scale_axis, "%x: float32[1,3,3,2], %k: float32[1,1,1,2]").stays(
        constants + start + nodes, reason
    )


def test_branches() -> None:
    nodes = "%d: float32[1,3,3,2] = mul(%z, {0})\n%c: float32[1,3,3,2] = add(%a, %d)\n"
    convolution = f"{WEIGHTS}%y: float32[1,3,3,2] = conv2d(%c, %w) {WINDOW}"
    pair.becomes(
        f"{SCALE}{nodes.format('%s')}{convolution}",
        f"%c: float32[1,3,3,2] = add(%x, %z)\n{convolution.replace(WEIGHTS, SCALED)}",
    )
    other = "%t = constant float32[2] [2.0, 4.0]\n"
    pair.stays(f"{other}{SCALE}{nodes.format('%t')}{convolution}", "different scales")


def test_parts() -> None:
    """Each part has a scale of its own, or none."""
    weights = "%w = constant float32[1,1,1,4] {0}\n"
    for second, scaled in (("%d", "[2.0, 6.0, 15.0, 20.0]"), ("%z", "[2.0, 6.0, 3.0, 4.0]")):
        concatenate = f"%c: float32[1,3,3,4] = concatenate(%a, {second}) {{axis=3}}\n"
        last = f"%y: float32[1,3,3,1] = conv2d(%c, %w) {WINDOW}"
        product = (
            "%t = constant float32[] [5.0]\n%d: float32[1,3,3,2] = mul(%z, %t)\n" if second == "%d" else ""
        )
        pair.becomes(
            f"{SCALE}{product}{concatenate}{weights.format('[1.0, 2.0, 3.0, 4.0]')}{last}",
            concatenate.replace("%a", "%x").replace("%d", "%z") + weights.format(scaled) + last,
        )


def test_all_readers_must_take_it() -> None:
    first = f"{WEIGHTS}%y: float32[1,3,3,2] = conv2d(%a, %w) {WINDOW}\n"
    second = "%v = constant float32[1,1,1,2] [{0}]\n%z: float32[1,3,3,2] = depthwise_conv2d({1}, %v) "
    case.becomes(
        f"{SCALE}{first}{second.format('1.0, 2.0', '%a')}{WINDOW}",
        f"{first.replace(WEIGHTS, SCALED).replace('%a', '%x')}{second.format('2.0, 6.0', '%x')}{WINDOW}",
        outputs="%y, %z",
    )
    case.stays(f"{SCALE}{first}%z: float32[1,3,3,2] = tanh(%a) {{out=float32}}", "tanh %z", outputs="%y, %z")
    case.stays(f"{SCALE}{first}", "%a leaves the graph", outputs="%y, %a")


@pytest.mark.parametrize(
    ("weights", "scaled", "node"),
    [
        (
            "float32[1,1,1,4] [1.0, 2.0, 3.0, 4.0]",
            "float32[1,1,1,4] [2.0, 4.0, 9.0, 12.0]",
            f"float32[1,3,3,4] = depthwise_conv2d(%a, %w) {WINDOW}",
        ),
        (
            "float32[4,1,1,1] [1.0, 2.0, 3.0, 4.0]",
            "float32[4,1,1,1] [2.0, 4.0, 9.0, 12.0]",
            f"float32[1,3,3,4] = conv2d(%a, %w) {WINDOW}",
        ),
        (
            "float32[2,1,1,2] [1.0, 2.0, 3.0, 4.0]",
            "float32[2,1,1,2] [2.0, 6.0, 6.0, 12.0]",
            "float32[1,6,6,2] = transpose_conv2d(%a, %w) {strides=(2, 2), offset=(0, 0), size=(6, 6)}",
        ),
    ],
    ids=["depthwise", "grouped", "transposed"],
)
def test_other_convolutions(weights: str, scaled: str, node: str) -> None:
    case.becomes(
        f"{SCALE}%w = constant {weights}\n%y: {node}",
        f"%w = constant {scaled}\n%y: {node.replace('%a', '%x')}",
    )


def test_products_of_matrices() -> None:
    product = (
        "%y: float32[1,2] = batch_matmul(%x, %w) {transpose_first=false, transpose_second=true, out=float32}"
    )
    row.becomes(
        f"""%s = constant float32[] [2.0]
%a: float32[1,2] = mul(%x, %s)
%w = constant float32[2,2] [1.0, 2.0, 3.0, 4.0]
{product.replace("%x", "%a")}""",
        f"%w = constant float32[2,2] [2.0, 4.0, 6.0, 8.0]\n{product}",
    )
