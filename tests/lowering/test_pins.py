"""Kernels that the user pins to layers: they are taken, and no others, whatever they are worth."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_file, explain_kernels, layer_names
from microfold.errors import InputError
from microfold.frontend.tflite import load
from microfold.options import Options
from microfold.program import Program
from tests.cli.test_passes import CNN
from tests.frontend.models import MADE

M4 = target.load("cortex-m4")
SLOW = "s8_conv2d__c_2x2"
# It is for optimize = size, so that nothing else takes it.
COMPACT = "s8_conv2d__dsp_compact"


def build(*kernels: str, **options: object) -> Program:
    return compile_file(CNN, M4, Options(kernels=kernels, **options))  # type: ignore[arg-type]


def kernels_of(program: Program, operator: str) -> list[str]:
    return [layer.kernel.name for layer in program.layers if layer.node.op.name == operator]


def test_layers_by_name_and_number_and_operators() -> None:
    speed = {"optimize": "speed"}
    free = kernels_of(build(**speed), "conv2d")
    assert kernels_of(build("conv2d_1=" + SLOW, **speed), "conv2d")[0] == SLOW != free[0]
    assert kernels_of(build("2=" + SLOW, **speed), "conv2d")[1] == SLOW != free[1]
    assert kernels_of(build("conv2d=" + COMPACT), "conv2d") == [COMPACT, COMPACT]
    # A layer goes before its operator, and of several kernels the best is taken.
    assert kernels_of(build("conv2d=" + COMPACT, "0=" + SLOW), "conv2d") == [SLOW, COMPACT]
    assert kernels_of(build("op:conv2d=" + SLOW, "conv2d=" + COMPACT), "conv2d") == [COMPACT] * 2
    # A kernel that is superseded on this core.
    assert kernels_of(build("0=s8_conv2d__thumb2_4x1"), "conv2d")[0] == "s8_conv2d__thumb2_4x1"


@pytest.mark.parametrize(
    "options", [{"optimize": "size"}, {"optimize": "speed"}, {"flash": 6000}, {"ram": 700}]
)
def test_budgets_and_levels_leave_them(options: dict[str, object]) -> None:
    assert kernels_of(build("conv2d=" + SLOW, **options), "conv2d") == [SLOW, SLOW]


def test_the_others_say_why() -> None:
    layers = explain_kernels(load(CNN), M4, Options(kernels=("2=" + SLOW,)))
    reasons = {c.kernel.name: c.reason for c in layers[2].candidates}
    assert reasons[SLOW] is None
    assert reasons["s8_conv2d__dsp_4x2"] == f"{SLOW} is pinned"


def test_rows() -> None:
    assert kernels_of(build("conv2d=" + SLOW, io="rows"), "conv2d") == [SLOW, SLOW]


def test_layers_that_a_loop_runs() -> None:
    file = MADE / "control_flow" / "while_long_f32.tflite"
    layers = explain_kernels(load(file), M4, Options())
    free = {name: each.candidates for name, each in zip(layer_names(layers), layers, strict=True)}
    name, other = next(
        (name, each.kernel.name)
        for name, found in free.items()
        for each in found[1:]
        if each.cost is not None
    )
    pinned = explain_kernels(load(file), M4, Options(kernels=(f"{name}={other}",)))
    chosen = {
        name: each.candidates[0].kernel.name for name, each in zip(layer_names(pinned), pinned, strict=True)
    }
    assert chosen == {each: found[0].kernel.name for each, found in free.items()} | {name: other}


def test_names_that_are_none() -> None:
    with pytest.raises(InputError) as refused:
        build("2=s8_conv2d__mve_2x4", "nope=a", "conv2d_1=s8_foo", "softmax=s8_softmax__c")
    message = str(refused.value)
    assert "2 by s8_conv2d__mve_2x4: the target lacks mve; possible: s8_conv2d__dsp_4x2, " in message
    assert "unknown layer or operator 'nope'; layers: conv2d_1, " in message
    assert "operators are conv2d, max_pool2d, " in message
    assert "conv2d_1 by s8_foo: no kernel of conv2d has this name; possible:" in message
    assert "softmax by" not in message
    with pytest.raises(InputError, match="must have the form LAYER=KERNEL or OPERATOR=KERNEL; got 'conv2d'"):
        build("conv2d")
    with pytest.raises(InputError, match="put 'a=b' in a list"):
        Options(kernels="a=b")  # type: ignore[arg-type]
