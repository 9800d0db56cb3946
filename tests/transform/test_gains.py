"""What rewrites gain on Cortex-M4, executed: bounds measured on graphs rewritten by hand."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import Struct

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.text import parse
from microfold.options import Options
from tests.counts import executed
from tests.needs import CROSS_TOOLS, need_tools

# Other compilers than the one that the figures are from choose other instructions.
HEAD_ROOM = 1.02


class Gain(Struct, frozen=True):
    """A graph, and what it may cost at most.

    Attributes:
        text: the lines of the body, of `%x`, an image of int8, to `%y`.
        ram: bytes of the arena.
    """

    text: str
    instructions: int
    ram: int


RNG = np.random.default_rng(1)


def _weights(name: str, shape: str, scale: float) -> str:
    """Constants of a convolution, and the text of its operands behind the image."""
    size = int(np.prod([int(n) for n in shape.split(",")]))
    channels = shape.split(",")[0]
    return (
        f"%w{name} = constant int8[{shape}] q({scale}, 0) {RNG.integers(-90, 90, size).tolist()}\n"
        f"%b{name} = constant int32[{channels}] {RNG.integers(-500, 500, int(channels)).tolist()}\n"
    )


FLOATS = "float32[1,24,24,16]"
SAME = "strides=(1, 1), dilations=(1, 1), padding=((1, 1), (1, 1))"
GAINS = {
    "pool_of_floats": Gain(
        """
        %a: float32[1,24,24,16] = dequantize(%x)
        %b: float32[1,12,12,16] = max_pool2d(%a) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))}
        %y: int8[1,12,12,16] q(0.05, 3) = quantize(%b)
        """,
        11_154,
        9_232,
    ),
    "class_of_floats": Gain(
        """
        %a: float32[1,24,24,16] = dequantize(%x)
        %y: int32[1,24,24] = arg_max(%a) {axis=3, dtype=int32}
        """,
        74_887,
        11_520,
    ),
    "hard_swish_spelled_out": Gain(
        """
        %three = constant int8[1] q(0.0234375, 0) [127]
        %sixth = constant int8[1] q(0.0013, 0) [127]
        %a: int8[1,24,24,16] q(0.07, -20) = add(%x, %three)
        %b: int8[1,24,24,16] q(0.07, -20) = clip(%a) {minimum=0.0, maximum=6.0}
        %c: int8[1,24,24,16] q(0.05, -100) = mul(%x, %b)
        %y: int8[1,24,24,16] q(0.05, -100) = mul(%c, %sixth)
        """,
        36_868,
        9_216,
    ),
    "relu_behind_reshape": Gain(
        f"""
        {_weights("", "16,1,1,16", 0.01)}
        %a: int8[1,24,24,16] q(0.05, -20) = conv2d(%x, %w, %b) {{
          strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))
        }}
        %c: int8[576,16] q(0.05, -20) = reshape(%a) {{shape=(576, 16)}}
        %y: int8[576,16] q(0.05, -20) = clip(%c) {{minimum=0.0, maximum=6.0}}
        """,
        191_881,
        11_304,
    ),
    "product_with_a_constant": Gain(
        f"""
        %w = constant int8[16,24] q(0.01, 0) {RNG.integers(-90, 90, 384).tolist()}
        %y: int8[1,24,24,24] q(0.3, 1) = batch_matmul(%x, %w) {{
          transpose_first=false, transpose_second=false
        }}
        """,
        314_229,
        23_100,
    ),
    "convolutions_side_by_side": Gain(
        f"""
        {_weights("1", "8,3,3,16", 0.01)} {_weights("2", "8,3,3,16", 0.01)}
        %a: int8[1,24,24,8] q(0.3, 0) = conv2d(%x, %w1, %b1) {{{SAME}}}
        %b: int8[1,24,24,8] q(0.3, 0) = conv2d(%x, %w2, %b2) {{{SAME}}}
        %y: int8[1,24,24,16] q(0.3, 0) = concatenate(%a, %b) {{axis=3}}
        """,
        1_344_702,
        10_640,
    ),
    "groups_of_channels": Gain(
        f"""
        {_weights("", "32,3,3,4", 0.01)}
        %y: int8[1,24,24,32] q(0.3, 0) = conv2d(%x, %w, %b) {{{SAME}}}
        """,
        943_783,
        36_864,
    ),
    "dilation_by_phases": Gain(
        f"""
        {_weights("", "16,3,3,16", 0.01)}
        %s: int8[1,12,2,12,2,16] q(0.05, 3) = reshape(%x) {{shape=(1, 12, 2, 12, 2, 16)}}
        %t: int8[2,2,1,12,12,16] q(0.05, 3) = transpose(%s) {{permutation=(2, 4, 0, 1, 3, 5)}}
        %p: int8[4,12,12,16] q(0.05, 3) = reshape(%t) {{shape=(4, 12, 12, 16)}}
        %c: int8[4,12,12,16] q(0.3, 0) = conv2d(%p, %w, %b) {{{SAME}}}
        %r: int8[2,2,1,12,12,16] q(0.3, 0) = reshape(%c) {{shape=(2, 2, 1, 12, 12, 16)}}
        %u: int8[1,12,2,12,2,16] q(0.3, 0) = transpose(%r) {{permutation=(2, 3, 0, 4, 1, 5)}}
        %y: int8[1,24,24,16] q(0.3, 0) = reshape(%u) {{shape=(1, 24, 24, 16)}}
        """,
        1_361_071,
        11_232,
    ),
    "floats_in_a_row": Gain(
        f"""
        %k = constant float32[16] {[0.125 * k for k in range(16)]}
        %s = constant float32[] [0.25]
        %f: {FLOATS} = dequantize(%x)
        %a: {FLOATS} = mul(%f, %k)
        %b: {FLOATS} = add(%a, %s)
        %c: {FLOATS} = clip(%b) {{minimum=0.0, maximum=6.0}}
        %y: {FLOATS} = mul(%c, %f)
        """,
        152_722,
        46_080,
    ),
    "floats_between_integers": Gain(
        f"""
        %p: int8[1,24,24,16] q(0.05, 3) = max_pool2d(%x) {{
          size=(3, 3), strides=(1, 1), padding=((1, 1), (1, 1))
        }}
        %a: {FLOATS} = dequantize(%x)
        %b: {FLOATS} = dequantize(%p)
        %c: {FLOATS} = mul(%a, %b)
        %d: {FLOATS} = sub(%c, %b)
        %y: int8[1,24,24,16] q(0.2, 1) = quantize(%d)
        """,
        564_900,
        18_432,
    ),
    "gelu_spelled_out": Gain(
        f"""
        %half = constant float32[] [0.5]
        %one = constant float32[] [1.0]
        %three = constant float32[] [3.0]
        %cubic = constant float32[] [0.044715]
        %scale = constant float32[] [0.7978846]
        %f: {FLOATS} = dequantize(%x)
        %p: {FLOATS} = pow(%f, %three)
        %c: {FLOATS} = mul(%p, %cubic)
        %s: {FLOATS} = add(%f, %c)
        %u: {FLOATS} = mul(%s, %scale)
        %t: {FLOATS} = tanh(%u)
        %o: {FLOATS} = add(%t, %one)
        %h: {FLOATS} = mul(%f, %half)
        %y: {FLOATS} = mul(%h, %o)
        """,
        1_143_933,
        46_080,
    ),
    "layer_norm_spelled_out": Gain(
        f"""
        %gamma = constant float32[16] {[0.125 * k for k in range(16)]}
        %beta = constant float32[16] {[0.25 * k for k in range(16)]}
        %epsilon = constant float32[] [0.001]
        %f: {FLOATS} = dequantize(%x)
        %m: float32[1,24,24,1] = mean(%f) {{axes=(3,), keep_dims=true}}
        %d: {FLOATS} = squared_difference(%f, %m)
        %v: float32[1,24,24,1] = mean(%d) {{axes=(3,), keep_dims=true}}
        %e: float32[1,24,24,1] = add(%v, %epsilon)
        %r: float32[1,24,24,1] = rsqrt(%e)
        %s: {FLOATS} = mul(%r, %gamma)
        %a: {FLOATS} = mul(%f, %s)
        %b: {FLOATS} = mul(%m, %s)
        %c: {FLOATS} = sub(%beta, %b)
        %y: {FLOATS} = add(%a, %c)
        """,
        269_009,
        46_080,
    ),
    "table_behind_1x1_convolution": Gain(
        f"""
        {_weights("", "16,1,1,16", 0.01)}
        %a: int8[1,24,24,16] q(0.05, -20) = conv2d(%x, %w, %b) {{
          strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))
        }}
        %y: int8[1,24,24,16] q(0.04, -60) = leaky_relu(%a) {{alpha=0.1}}
        """,
        182_678,
        11_304,
    ),
    "narrow_clip_behind_1x1_convolution": Gain(
        f"""
        {_weights("", "16,1,1,16", 0.01)}
        %a: int8[1,24,24,16] q(0.05, -20) = conv2d(%x, %w, %b) {{
          strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))
        }}
        %y: int8[1,24,24,16] q(0.05, -20) = clip(%a) {{minimum=0.0, maximum=3.0}}
        """,
        191_881,
        11_304,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GAINS)
def test_gain(name: str) -> None:
    need_tools(*CROSS_TOOLS)
    gain = GAINS[name]
    graph = parse(f"graph @g(%x: int8[1,24,24,16] q(0.05, 3)) -> (%y) {{ {gain.text} }}")
    # Where flash counts, too, so small graphs have loops that are not written out.
    options = Options(optimize="speed") if name == "floats_in_a_row" else Options()
    program = compile_graph(graph, target.load("cortex-m4"), options)
    assert executed(program) <= HEAD_ROOM * gain.instructions
    assert program.arena.size <= gain.ram
