"""What kernels leave out because ranges prove that it cannot happen."""

from __future__ import annotations

from base64 import b64encode
from textwrap import dedent

import numpy as np
import pytest

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold import compiler, target
from microfold.analysis.ranges import NO_RANGES
from microfold.ir.text import parse
from microfold.lowering import scope
from microfold.options import Options
from microfold.program import Program
from microfold.verification.verify import input_sets, verify
from tests.needs import need_tools

# Inputs of the convolution are at most 15 above their zero point, no weight and no bias is negative: neither
# are sums, and results are within the bounds of the last clip.
CONV = """\
    graph @narrow(%x: int8[1,6,6,4] q(0.1, -100)) -> (%z) {{
      %r: int8[1,6,6,4] q(0.1, -100) = clip(%x) {{minimum=0.0, maximum=1.5}}
      %w = constant int8[8,1,1,4] q(0.01, 0) {weights}
      %b = constant int32[8] [7, 8, 9, 10, 11, 12, 13, 14]
      %y: int8[1,6,6,8] q(0.025, -20) = conv2d(%r, %w, %b) {{{attributes}}}
      %z: int8[1,6,6,8] q(0.025, -20) = clip(%y) {{minimum=-0.5, maximum=2.0}}
    }}
    """
ATTRIBUTES = "strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))"


def program(core: str) -> Program:
    weights = np.random.default_rng(0).integers(1, 25, 32).astype(np.int8)
    data = f"dense<{b64encode(weights.tobytes()).decode()}>"
    graph = parse(dedent(CONV.format(weights=data, attributes=ATTRIBUTES)))
    return compiler.compile_graph(graph, target.load(core), Options(optimize="speed"))


def specification(built: Program) -> dict[str, object]:
    (layer,) = [layer for layer in built.layers if layer.node.op.name == "conv2d"]
    return dict(layer.call.function.spec)


CORES = ("host", "cortex-m4", "cortex-m55")


def clamps(built: Program) -> bool:
    """Whether outputs have bounds of their own, as the kernels' specifications call it."""
    spec = specification(built)
    return bool(spec.get("clamp") or spec.get("clamp_behind"))


def rounds_negative_sums(built: Program) -> bool:
    form = str(specification(built)["requantize"])
    return form != "biasless" and not form.endswith("relu")


@pytest.mark.parametrize("core", CORES)
def test_what_cannot_happen_is_left_out(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = program(core)
    assert not clamps(built)
    assert not rounds_negative_sums(built)
    monkeypatch.setattr(scope, "analyze", lambda _: NO_RANGES)
    built = program(core)
    assert clamps(built)
    assert rounds_negative_sums(built)


@pytest.mark.always
@pytest.mark.parametrize(
    "core", [pytest.param(core, marks=pytest.mark.slow if core != "host" else ()) for core in CORES]
)
def test_results_are_exact(core: str) -> None:
    if core != "host":
        need_tools("arm-none-eabi-gcc", "qemu-system-arm")
    built = program(core)
    result = verify(built, input_sets([buffer.type for buffer in built.inputs], 6))
    assert result.exact, result.differences


def test_results_that_are_never_negative_need_no_correction() -> None:
    text = """\
        graph @g(%x: int8[1,7] q(0.1, -128), %y: int8[1,7] q(0.3, -100)) -> (%z) {
          %r: int8[1,7] q(0.3, -100) = clip(%y) {minimum=0.0, maximum=inf}
          %z: int8[1,7] q(0.9, 5) = mul(%x, %r)
        }
        """
    built = compiler.compile_graph(parse(dedent(text)), target.load("host"))
    assert dict(built.layers[-1].call.function.spec)["requantize"] == "short_relu"
    result = verify(built, input_sets([buffer.type for buffer in built.inputs], 40))
    assert result.exact, result.differences
