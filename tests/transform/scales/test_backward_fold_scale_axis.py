from __future__ import annotations

import pytest

from microfold.transform.scales.backward_fold_scale_axis import backward_fold_scale_axis
from tests.transform.axis_graphs import RELU, SAME, WINDOW, Case

case = Case(backward_fold_scale_axis)
row = Case(backward_fold_scale_axis, "%x: float32[1,2]")
pair = Case(backward_fold_scale_axis, "%x: float32[1,3,3,2], %z: float32[1,3,3,2]")

# A convolution, its weights scaled by 2 and 3 per output channel, and what is multiplied.
CONV = f"""
%w = constant float32[2,1,1,2] [1.0, 2.0, 3.0, 4.0]
%b = constant float32[2] [0.5, -1.0]
%a: float32[1,3,3,2] = conv2d(%x, %w, %b) {WINDOW}
"""
SCALED = f"""
%w = constant float32[2,1,1,2] [2.0, 4.0, 9.0, 12.0]
%b = constant float32[2] [1.0, -3.0]
%a: float32[1,3,3,2] = conv2d(%x, %w, %b) {WINDOW}
"""
SCALE = "%s = constant float32[2] [2.0, 3.0]\n"


def test_convolution() -> None:
    decisions = case.becomes(f"{CONV}{SCALE}%y: float32[1,3,3,2] = mul(%a, %s)", SCALED.replace("%a", "%y"))
    assert [str(decision) for decision in decisions] == [
        "backward_fold_scale_axis: mul %y: its scale 2 to 3 along axis 3 goes into conv2d %a"
    ]


@pytest.mark.parametrize(
    ("scale", "node"),
    [
        ("%s = constant float32[1,1,1,2] [2.0, 3.0]", "mul(%s, %a)"),
        ("%s = constant float32[1,3,3,2] [" + ", ".join(["2.0, 3.0"] * 9) + "]", "mul(%a, %s)"),
        ("%s = constant float32[2] [0.5, 0.33333334]", "div(%a, %s)"),
    ],
)
def test_forms_of_a_scale(scale: str, node: str) -> None:
    weights = SCALED.replace("%a", "%y")
    case.becomes(f"{CONV}{scale}\n%y: float32[1,3,3,2] = {node}", weights)


def test_scalars_and_zeros_and_negatives() -> None:
    for scale, first in (
        ("float32[] [2.0]", "[2.0, 4.0, 6.0, 8.0]"),
        ("float32[1] [-1.0]", "[-1.0, -2.0, -3.0, -4.0]"),
    ):
        case.becomes(
            f"""
            %w = constant float32[2,1,1,2] [1.0, 2.0, 3.0, 4.0]
            %a: float32[1,3,3,2] = conv2d(%x, %w) {WINDOW}
            %s = constant {scale}
            %y: float32[1,3,3,2] = mul(%a, %s)
            """,
            f"%w = constant float32[2,1,1,2] {first}\n%y: float32[1,3,3,2] = conv2d(%x, %w) {WINDOW}",
        )
    case.becomes(
        f"{CONV}%s = constant float32[2] [0.0, 3.0]\n%y: float32[1,3,3,2] = mul(%a, %s)",
        f"""
        %w = constant float32[2,1,1,2] [0.0, 0.0, 9.0, 12.0]
        %b = constant float32[2] [0.0, -3.0]
        %y: float32[1,3,3,2] = conv2d(%x, %w, %b) {WINDOW}
        """,
    )
    negation = f'{CONV}%y: float32[1,3,3,2] = unary(%a) {{function="neg", out=float32}}'
    case.becomes(
        negation,
        f"""
        %w = constant float32[2,1,1,2] [-1.0, -2.0, -3.0, -4.0]
        %b = constant float32[2] [-0.5, 1.0]
        %y: float32[1,3,3,2] = conv2d(%x, %w, %b) {WINDOW}
        """,
    )


def test_through_constants_added_and_multiplied() -> None:
    case.becomes(
        f"""
        {CONV.replace(chr(10), chr(10) + " " * 8)}
        %t = constant float32[2] [1.0, 10.0]
        %c: float32[1,3,3,2] = sub(%t, %a)
        %s = constant float32[2] [2.0, 3.0]
        %d: float32[1,3,3,2] = mul(%c, %s)
        %u = constant float32[] [7.0]
        %y: float32[1,3,3,2] = add(%u, %d)
        """,
        f"""
        {SCALED.replace(chr(10), chr(10) + " " * 8)}
        %t = constant float32[2] [2.0, 30.0]
        %c: float32[1,3,3,2] = sub(%t, %a)
        %u = constant float32[] [7.0]
        %y: float32[1,3,3,2] = add(%u, %c)
        """,
    )
    # The first product cannot go, as nothing computes %x; it takes the scale of the second.
    case.becomes(
        f"""
        %s = constant float32[] [2.0]
        %a: float32[1,3,3,2] = mul(%x, %s)
        %r: float32[1,3,3,2] = clip(%a) {RELU}
        %t = constant float32[2] [2.0, 3.0]
        %y: float32[1,3,3,2] = mul(%r, %t)
        """,
        f"""
        %s = constant float32[2] [4.0, 6.0]
        %a: float32[1,3,3,2] = mul(%x, %s)
        %y: float32[1,3,3,2] = clip(%a) {RELU}
        """,
    )


@pytest.mark.parametrize(
    ("node", "scale"),
    [
        (f"float32[1,3,3,2] = clip(%a) {RELU}", "float32[2] [2.0, 3.0]"),
        ("float32[1,3,3,2] = clip(%a) {minimum=-inf, maximum=0.0}", "float32[2] [2.0, 3.0]"),
        ("float32[1,3,3,2] = leaky_relu(%a) {alpha=0.25, out=float32}", "float32[2] [2.0, 3.0]"),
        (
            "float32[1,2,2,2] = max_pool2d(%a) {size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 0))}",
            "float32[2] [2.0, 3.0]",
        ),
        (
            "float32[1,3,3,2] = average_pool2d(%a) {size=(2, 2), strides=(1, 1), padding=((1, 0), (0, 1))}",
            "float32[2] [2.0, 3.0]",
        ),
        (
            "float32[1,4,3,2] = pad(%a) {padding=((0, 0), (1, 0), (0, 0), (0, 0)), fill=0.0}",
            "float32[2] [2.0, 3.0]",
        ),
        ("float32[2,3,3,1] = transpose(%a) {permutation=(3, 1, 2, 0)}", "float32[2,1,1,1] [2.0, 3.0]"),
        ("float32[9,2] = reshape(%a) {shape=(9, 2)}", "float32[2] [2.0, 3.0]"),
        ("float32[1,18] = reshape(%a) {shape=(1, 18)}", "float32[18] [" + ", ".join(["2.0, 3.0"] * 9) + "]"),
        ("float32[1,2] = mean(%a) {axes=(1, 2), keep_dims=false, out=float32}", "float32[2] [2.0, 3.0]"),
        ("float32[1,1,1,2] = reduce_max(%a) {axes=(1, 2), keep_dims=true}", "float32[1,2] [2.0, 3.0]"),
        ("float32[1,3,3,2] = add(%a, %a)", "float32[2] [2.0, 3.0]"),
        ("float32[1,3,3,4] = concatenate(%a, %a) {axis=3}", "float32[4] [2.0, 3.0, 2.0, 3.0]"),
        ("float32[1,6,3,2] = concatenate(%a, %a) {axis=1}", "float32[2] [2.0, 3.0]"),
    ],
)
def test_through(node: str, scale: str) -> None:
    type = node.split(" = ")[0]
    case.becomes(
        f"{CONV}%s = constant {scale}\n%c: {node}\n%y: {type} = mul(%c, %s)",
        f"{SCALED}%y: {node}",
    )


@pytest.mark.parametrize(
    ("node", "scale", "reason"),
    [
        (f"float32[1,3,3,2] = clip(%a) {RELU}", "float32[2] [2.0, -3.0]", "scales that are not negative"),
        ("float32[1,3,3,2] = clip(%a) {minimum=0.0, maximum=6.0}", "float32[2] [2.0, 3.0]", "it clips at 6"),
        ("float32[1,3,3,2] = tanh(%a) {out=float32}", "float32[2] [2.0, 3.0]", "tanh %c passes no scales"),
        (
            "float32[1,2,2,2] = max_pool2d(%a) {size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 0))}",
            "float32[] [-1.0]",
            "not negative; this one is -1",
        ),
        (
            "float32[1,2,2,2] = max_pool2d(%a) {size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 0))}",
            "float32[2,1] [2.0, 3.0]",
            "different scales along axis 2",
        ),
        (
            "float32[1,4,3,2] = pad(%a) {padding=((0, 0), (1, 0), (0, 0), (0, 0)), fill=1.0}",
            "float32[2] [2.0, 3.0]",
            "it fills with 1",
        ),
        (
            "float32[1,4,3,2] = pad(%a) {padding=((0, 0), (1, 0), (0, 0), (0, 0)), fill=-inf}",
            "float32[2] [2.0, 0.0]",  # which would make NaN of it
            "it fills with -inf",
        ),
        (
            "float32[2,3,3,1] = transpose(%a) {permutation=(3, 1, 2, 0)}",
            "float32[3,1] [1.0, 2.0, 3.0]",
            "axis 2",
        ),
        (
            "float32[1,18] = reshape(%a) {shape=(1, 18)}",
            "float32[18] [" + "2.0, " * 17 + "3.0]",
            "varies along",
        ),
        ("float32[1,3,3,2] = add(%a, %x)", "float32[2] [2.0, 3.0]", "no node computes %x"),
        (
            "float32[1,3,3,4] = concatenate(%a, %a) {axis=3}",
            "float32[4] [1.0, 2.0, 3.0, 4.0]",
            "want different",
        ),
    ],
)
def test_not_through(node: str, scale: str, reason: str) -> None:
    type = node.split(" = ")[0]
    case.stays(f"{CONV}%s = constant {scale}\n%c: {node}\n%y: {type} = mul(%c, %s)", reason)


def test_not_along_other_axes() -> None:
    for shape in ("[3,1]", "[1,3,1,1]"):
        case.stays(
            f"{CONV}%s = constant float32{shape} [1.0, 2.0, 3.0]\n%y: float32[1,3,3,2] = mul(%a, %s)",
            "one scale per channel (axis 3)",
        )


def test_not_a_computed_factor() -> None:
    pair.stays(f"{CONV}%y: float32[1,3,3,2] = mul(%a, %z)", "")


def test_not_weights_that_are_computed() -> None:
    Case(backward_fold_scale_axis, "%x: float32[1,3,3,2], %w: float32[2,1,1,2]").stays(
        f"%a: float32[1,3,3,2] = conv2d(%x, %w) {WINDOW}\n{SCALE}%y: float32[1,3,3,2] = mul(%a, %s)",
        "no node computes %w",
    )


def test_branches_with_the_same_scale() -> None:
    nodes = """
        %v = constant float32[1,1,1,2] {0}
        %c: float32[1,3,3,2] = depthwise_conv2d(%z, %v) {1}
        %r: float32[1,3,3,2] = clip(%c) {2}
        %d: float32[1,3,3,2] = add(%r, %a)
        """
    scale = "%s = constant float32[2] [2.0, 3.0]\n%y: float32[1,3,3,2] = mul(%d, %s)"
    pair.becomes(
        CONV + _dedented(nodes.format("[1.0, 2.0]", WINDOW, RELU)) + scale,
        SCALED + _dedented(nodes.format("[2.0, 6.0]", WINDOW, RELU)).replace("%d", "%y"),
    )


def test_parts_with_different_scales() -> None:
    nodes = """
        %v = constant float32[1,1,1,2] {0}
        %c: float32[1,3,3,2] = depthwise_conv2d(%z, %v) {1}
        %d: float32[1,3,3,4] = concatenate(%a, %c) {{axis=3}}
        """
    scale = "%s = constant float32[4] [2.0, 3.0, -4.0, 5.0]\n%y: float32[1,3,3,4] = mul(%d, %s)"
    pair.becomes(
        CONV + _dedented(nodes.format("[1.0, 2.0]", WINDOW)) + scale,
        SCALED + _dedented(nodes.format("[-4.0, 10.0]", WINDOW)).replace("%d", "%y"),
    )
    # A part that is not scaled need not be able to take a scale.
    pair.becomes(
        f"""{CONV}%d: float32[1,3,3,4] = concatenate(%a, %z) {{axis=3}}
%s = constant float32[4] [2.0, 3.0, 1.0, 1.0]
%y: float32[1,3,3,4] = mul(%d, %s)""",
        f"{SCALED}%y: float32[1,3,3,4] = concatenate(%a, %z) {{axis=3}}",
    )


def test_readers_that_agree() -> None:
    case.becomes(
        f"""{CONV}{SCALE}%r: float32[1,3,3,2] = clip(%a) {RELU}
%c: float32[1,3,3,2] = mul(%r, %s)
%u = constant float32[1,1,1,2] [2.0, 3.0]
%d: float32[1,3,3,2] = mul(%u, %a)
%y: float32[1,3,3,2] = maximum(%c, %d)""",
        f"""{SCALED}%r: float32[1,3,3,2] = clip(%a) {RELU}
%y: float32[1,3,3,2] = maximum(%r, %a)""",
    )


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("%z: float32[1,3,3,2] = mul(%a, %t)", "want different scales"),
        (f"%z: float32[1,3,3,2] = clip(%a) {RELU}", "clip %z reads %a without this scale"),
        ("%z: float32[1,9,2] = reshape(%a) {shape=(1, 9, 2)}", "reshape %z reads %a without"),
        ("", "the graph returns %a"),
    ],
)
def test_readers_that_do_not_agree(other: str, reason: str) -> None:
    nodes = f"{CONV}{SCALE}%t = constant float32[] [5.0]\n%y: float32[1,3,3,2] = mul(%a, %s)\n{other}"
    case.stays(nodes, reason, outputs="%y, %z" if other else "%y, %a")


def test_readers_that_do_not_agree_stop_messages_further_on() -> None:
    """%c has one reader, but takes no scale that its operand cannot take."""
    case.stays(
        f"""{CONV}{SCALE}%c: float32[1,3,3,2] = clip(%a) {RELU}
%d: float32[1,3,3,2] = add(%c, %a)
%y: float32[1,3,3,2] = mul(%c, %s)""",
        "without this scale",
        outputs="%y, %d",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (  # a multiplier of 2: channels 0, 0, 1, 1
            f"""
            %w = constant float32[1,1,1,4] [1.0, 2.0, 3.0, 4.0]
            %a: float32[1,3,3,4] = depthwise_conv2d(%x, %w) {WINDOW}
            %s = constant float32[4] [2.0, 3.0, -4.0, 5.0]
            %y: float32[1,3,3,4] = mul(%a, %s)
            """,
            f"""
            %w = constant float32[1,1,1,4] [2.0, 6.0, -12.0, 20.0]
            %y: float32[1,3,3,4] = depthwise_conv2d(%x, %w) {WINDOW}
            """,
        ),
        (  # two groups of two filters
            f"""
            %w = constant float32[4,1,1,1] [1.0, 2.0, 3.0, 4.0]
            %a: float32[1,3,3,4] = conv2d(%x, %w) {SAME}
            %s = constant float32[4] [2.0, 3.0, -4.0, 5.0]
            %y: float32[1,3,3,4] = mul(%a, %s)
            """.replace("(1, 1), (1, 1))}", "(0, 0), (0, 0))}"),
            f"""
            %w = constant float32[4,1,1,1] [2.0, 6.0, -12.0, 20.0]
            %y: float32[1,3,3,4] = conv2d(%x, %w) {WINDOW}
            """,
        ),
        (
            """
            %w = constant float32[2,1,1,2] [1.0, 2.0, 3.0, 4.0]
            %a: float32[1,6,6,2] = transpose_conv2d(%x, %w) {strides=(2, 2), offset=(0, 0), size=(6, 6)}
            %s = constant float32[2] [2.0, 3.0]
            %y: float32[1,6,6,2] = mul(%a, %s)
            """,
            """
            %w = constant float32[2,1,1,2] [2.0, 4.0, 9.0, 12.0]
            %y: float32[1,6,6,2] = transpose_conv2d(%x, %w) {strides=(2, 2), offset=(0, 0), size=(6, 6)}
            """,
        ),
    ],
    ids=["depthwise", "grouped", "transposed"],
)
def test_other_convolutions(before: str, after: str) -> None:
    case.becomes(before, after)


def test_products_of_matrices() -> None:
    row.becomes(
        """
        %w = constant float32[2,2] [1.0, 2.0, 3.0, 4.0]
        %a: float32[1,2] = fully_connected(%x, %w)
        %s = constant float32[1,2] [2.0, 3.0]
        %y: float32[1,2] = mul(%a, %s)
        """,
        """
        %w = constant float32[2,2] [2.0, 4.0, 9.0, 12.0]
        %y: float32[1,2] = fully_connected(%x, %w)
        """,
    )
    attributes = "{transpose_first=false, transpose_second=false, out=float32}"
    row.becomes(
        f"""
        %w = constant float32[2,2] [1.0, 2.0, 3.0, 4.0]
        %a: float32[1,2] = batch_matmul(%x, %w) {attributes}
        %s = constant float32[1,2] [2.0, 3.0]
        %y: float32[1,2] = mul(%a, %s)
        """,
        f"""
        %w = constant float32[2,2] [2.0, 6.0, 6.0, 12.0]
        %y: float32[1,2] = batch_matmul(%x, %w) {attributes}
        """,
    )


def test_epilogues() -> None:
    relu, clipped = f"| clip() {RELU}", "| clip() {minimum=0.0, maximum=6.0}"
    product = f"\n{SCALE}%y: float32[1,3,3,2] = mul(%a, %s)"
    case.becomes(CONV.strip() + relu + product, SCALED.strip().replace("%a", "%y") + relu)
    case.stays(CONV.strip() + clipped + product, "in the epilogue of conv2d %a: it clips at 6")


def test_numbers_that_no_float_holds() -> None:
    huge = "%s = constant float32[] [1e38]\n%y: float32[1,3,3,2] = mul(%a, %s)"
    case.stays(
        CONV.replace("[1.0, 2.0, 3.0, 4.0]", "[1.0, 2.0, 3.0, 40.0]") + huge, "beyond the range of float32"
    )
    tiny = CONV.replace("[1.0, 2.0, 3.0, 4.0]", "[0.1, 0.2, 0.3, 0.4]")
    case.stays(f"{tiny}%s = constant float32[] [1e-38]\n%y: float32[1,3,3,2] = mul(%a, %s)", "too small")


def test_quantized() -> None:
    quant = "int8[1,2] q(0.1, 0)"
    Case(backward_fold_scale_axis, f"%x: {quant}").stays(
        f"""
        %w = constant int8[2,2] q(0.1, 0) [1, 2, 3, 4]
        %a: {quant} = fully_connected(%x, %w)
        %s = constant int8[2] q(0.1, 0) [20, 30]
        %y: {quant} = mul(%a, %s)
        """,
        "it is quantised",
    )


def _dedented(nodes: str) -> str:
    return "".join(line.strip() + "\n" for line in nodes.strip().splitlines())
