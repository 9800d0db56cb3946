"""Dequantize goes down and quantize up, through what moves, picks or compares."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.ir.text import parse
from microfold.ir.types import Tensor
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.transform.simplify.fake_quantization_to_integer import fake_quantization_to_integer
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

# Of %a, which is dequantized, and %b, likewise; the shape of the result, and its type if it is no float.
SINK = {
    "max_pool2d(%a) {size=(2, 2), strides=(1, 1), padding=((0, 1), (0, 0))}": "float32[1,4,3,2]",
    "reduce_max(%a) {axes=(1, 3), keep_dims=false}": "float32[1,4]",
    "reduce_min(%a) {axes=(0, 1, 2, 3), keep_dims=true}": "float32[1,1,1,1]",
    "reshape(%a) {shape=(8, 4)}": "float32[8,4]",
    "transpose(%a) {permutation=(0, 3, 1, 2)}": "float32[1,2,4,4]",
    "strided_slice(%a) {begin=(0, 3, 0, 1), size=(1, 2, 4, 1), strides=(1, -2, 1, 1)}": "float32[1,2,4,1]",
    "gather(%a, %i) {axis=1}": "float32[1,2,4,2]",
    "resize_nearest_neighbor(%a) {size=(2, 3), align_corners=false, half_pixel_centers=true}": (
        "float32[1,2,3,2]"
    ),
    "concatenate(%a, %b) {axis=2}": "float32[1,4,8,2]",
    "maximum(%a, %b)": "float32[1,4,4,2]",
    "minimum(%k, %b)": "float32[1,4,4,2]",
    "select(%c, %a, %b)": "float32[1,4,4,2]",
    "pad(%a) {padding=((0, 0), (0, 0), (0, 0), (0, 0)), fill=0.0}": "float32[1,4,4,2]",
    "clip(%a) {minimum=0.0, maximum=inf}": "float32[1,4,4,2]",
    "arg_max(%a) {axis=3, dtype=int32}": "int32[1,4,4]",
    "arg_min(%a) {axis=1, dtype=int64}": "int64[1,4,2]",
}
ELEMENTS = ("int8[1,4,4,2] q(0.0371, -7)", "int16[1,4,4,2] q(0.00013, 0)", "uint8[1,4,4,2] q(1.7, 255)")


@pytest.mark.parametrize("element", ELEMENTS)
def test_dequantize_goes_behind(element: str) -> None:
    for expression, result in SINK.items():
        if "uint8" in element and ("pool" in expression or "reduce" in expression):
            continue  # their type rules have no uint8
        before = parse(
            f"""
            graph @g(%x: {element}, %z: {element}, %c: bool[1,4,4,2]) -> (%y) {{
              %k = constant float32[1] [0.0]
              %i = constant int32[2] [3, 1]
              %a: float32[1,4,4,2] = dequantize(%x)
              %b: float32[1,4,4,2] = dequantize(%z)
              %y: {result} = {expression}
            }}
            """
        )
        after = fake_quantization_to_integer(before)
        last = after.nodes[-1]
        assert isinstance(last.op, Dequantize) == ("float" in result), expression
        assert all(not isinstance(node.op, Dequantize) for node in after.nodes[:-1]), expression
        assert_same_meaning(before, after)
        assert fake_quantization_to_integer(after) is after


def test_any_scale_keeps_the_order_of_numbers() -> None:
    """The proof in the pass's description, on scales whose products are rounded most."""
    rng = np.random.default_rng(7)
    scales = [*np.exp(rng.uniform(-40, 40, 60)), 1e-18, 1e18, np.nextafter(1, 2), np.nextafter(2, 1), 1 / 3]
    for scale in np.array(scales, np.float32).tolist():
        for dtype, zero_point in (("int16", 0), ("int8", -128), ("uint8", 255)):
            graph = parse(
                f"""
                graph @g(%x: {dtype}[65536] q({scale!r}, {zero_point})) -> (%y) {{
                  %y: float32[65536] = dequantize(%x)
                }}
                """
            )
            node = graph.nodes[0]
            low, high = node.operands[0].type.dtype.range
            numbers = np.resize(np.arange(low, high + 1), 65536).astype(dtype)
            floats = node.op.evaluate([Tensor(node.operands[0].type, numbers)])[0].data[: high - low + 1]
            assert np.all(np.diff(floats) > 0)
            assert np.all(np.isfinite(floats))
            assert not np.any(np.signbit(floats) & (floats == 0))


RAISED = {
    "transpose(%f) {permutation=(1, 0)}": "[4,2]",
    "reshape(%f) {shape=(8,)}": "[8]",
    "pad(%f) {padding=((1, 0), (0, 2)), fill=1.3}": "[3,6]",
    "broadcast_to(%f) {shape=(3, 2, 4)}": "[3,2,4]",
    "concatenate(%f, %a, %f, %k) {axis=0}": "[7,4]",
    "maximum(%a, %b)": "[2,4]",
    "minimum(%k, %f)": "[2,4]",
    "select(%c, %f, %b)": "[2,4]",
}


@pytest.mark.parametrize("scale", [0.05, 0.3000001, 2.0])
def test_quantize_goes_before(scale: float) -> None:
    for expression, shape in RAISED.items():
        before = parse(
            f"""
            graph @g(
              %f: float32[2,4], %x: int8[2,4] q(0.1, 4), %z: int16[2,4] q(0.01, 0), %c: bool[2,4]
            ) -> (%y) {{
              %k = constant float32[1,4] [0.5, -1.75, 7.0, 1000.0]
              %a: float32[2,4] = dequantize(%x)
              %b: float32[2,4] = dequantize(%z)
              %r: float32{shape} = {expression}
              %y: int8{shape} q({scale}, -3) = quantize(%r)
            }}
            """
        )
        after = fake_quantization_to_integer(before)
        assert not isinstance(after.nodes[-1].op, Quantize), expression
        assert_same_meaning(before, after)
        assert fake_quantization_to_integer(after) is after


def test_rows_of_operators() -> None:
    check_rewrite(
        fake_quantization_to_integer,
        """
        graph @g(%x: int8[1,4,4,2] q(0.1, 3), %f: float32[2,4]) -> (%y, %z) {
          %a: float32[1,4,4,2] = dequantize(%x)
          %b: float32[1,2,2,2] = max_pool2d(%a) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))}
          %y: float32[2,4] = reshape(%b) {shape=(2, 4)}
          %d: float32[4,2] = transpose(%f) {permutation=(1, 0)}
          %e: float32[8] = reshape(%d) {shape=(8,)}
          %z: int8[8] q(0.1, 3) = quantize(%e)
        }
        """,
        """
        graph @g(%x: int8[1,4,4,2] q(0.1, 3), %f: float32[2,4]) -> (%y#1, %z) {
          %b: int8[1,2,2,2] q(0.1, 3) = max_pool2d(%x) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))}
          %y: int8[2,4] q(0.1, 3) = reshape(%b) {shape=(2, 4)}
          %y#1: float32[2,4] = dequantize(%y)
          %f#1: int8[2,4] q(0.1, 3) = quantize(%f)
          %d: int8[4,2] q(0.1, 3) = transpose(%f#1) {permutation=(1, 0)}
          %z: int8[8] q(0.1, 3) = reshape(%d) {shape=(8,)}
        }
        """,
    )


def test_two_readers_that_both_take_integers() -> None:
    graph = parse(
        """
        graph @g(%x: int8[1,4,4,2] q(0.1, 3)) -> (%y, %z) {
          %a: float32[1,4,4,2] = dequantize(%x)
          %y: int32[1,4,4] = arg_max(%a) {axis=3, dtype=int32}
          %z: float32[1,4] = reduce_max(%a) {axes=(1, 3), keep_dims=false}
        }
        """
    )
    after = fake_quantization_to_integer(graph)
    assert [node.op.name for node in after.nodes] == ["arg_max", "reduce_max", "dequantize"]
    assert_same_meaning(graph, after)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("%y: float32[4] = clip(%a) {minimum=0.05, maximum=inf}", "cannot represent the bound 0.05"),
        ("%y: float32[4] = pad(%a) {padding=((0, 0),), fill=0.25}", "cannot represent the fill 0.25"),
        ("%y: float32[6] = pad(%a) {padding=((1, 1),), fill=0.0}", "it makes 6 elements of 4"),
        ("%y: float32[8] = concatenate(%a, %b) {axis=0}", "come from different element types"),
        ("%y: float32[12] = concatenate(%a, %a, %a) {axis=0}", "it makes 12 elements of 4"),
        ("%y: float32[8] = concatenate(%a, %f) {axis=0}", "%f is not dequantized"),
        ("%y: float32[4] = maximum(%a, %k)", "%k has numbers that are no int8 with this scale"),
        ("%t: float32[4] = tanh(%a) %y: float32[4] = reshape(%a) {shape=(4,)}", "%a has other readers"),
        ("%y: float32[4] = clip(%a) {minimum=900.0, maximum=inf}", "beyond the type's range"),
        ("%y: float32[1] = reduce_max(%w) {axes=(0,), keep_dims=true}", "must have 8 or 16 bits"),
    ],
)
def test_declined(line: str, reason: str) -> None:
    others = ", %t" if "%t" in line else ""
    check_declined(
        fake_quantization_to_integer,
        f"""
        graph @g(
          %x: int8[4] q(0.1, 3), %z: int8[4] q(0.2, 3), %i: int32[4] q(0.1, 0), %f: float32[4]
        ) -> (%y{others}) {{
          %k = constant float32[1] [0.125]
          %a: float32[4] = dequantize(%x)
          %b: float32[4] = dequantize(%z)
          %w: float32[4] = dequantize(%i)
          {line}
        }}
        """,
        reason,
    )


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            "%r: float32[2] = strided_slice(%f) {begin=(1,), size=(2,), strides=(1,)}",
            "it makes 2 elements of 4",
        ),
        ("%r: float32[8] = concatenate(%f, %g) {axis=0}", "but none is dequantized"),
        (
            "%r: float32[2,2] = reshape(%f) {shape=(2, 2)} %t: float32[2,2] = tanh(%r)",
            "its result has other readers",
        ),
    ],
)
def test_quantize_stays(lines: str, reason: str) -> None:
    shape = lines.partition("float32")[2].partition(" ")[0]
    others = ", %t" if "%t" in lines else ""
    check_declined(
        fake_quantization_to_integer,
        f"""
        graph @g(%f: float32[4], %g: float32[4]) -> (%y{others}) {{
          {lines}
          %y: int8{shape} q(0.1, 3) = quantize(%r)
        }}
        """,
        reason,
    )
