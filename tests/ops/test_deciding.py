"""Scales chosen so that float32 steps on the way to a multiplier would change results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from microfold import compile
from microfold.arithmetic import numerics
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from microfold.ir.types import DType, ElementType, Quant
from microfold.ops import accumulate
from tests import oracle
from tests.needs import need_modules
from tests.ops import deciding

CASES = deciding.load()


@pytest.mark.parametrize("kind", deciding.KINDS)
def test_reference(kind: str) -> None:
    cases = [case for case in CASES if case.kind == kind]
    assert cases, "run python -m tests.tools.make_deciding"
    data, inputs = deciding.model(cases)
    results = Interpreter(import_model(data)).run(*inputs)
    for case, result in zip(cases, results, strict=True):
        assert result.reshape(-1).tolist() == list(case.expected), case


def test_generated_code(tmp_path: Path) -> None:
    """One case of each kind."""
    cases = list({case.kind: case for case in CASES}.values())
    data, inputs = deciding.model(cases)
    path = tmp_path / "deciding.tflite"
    path.write_bytes(data)
    for case, result in zip(cases, compile(path).run(*inputs), strict=True):
        assert result.reshape(-1).tolist() == list(case.expected), case


@pytest.mark.parametrize("wheel", ["tflm", "litert"])
def test_wheels(wheel: str) -> None:
    need_modules("tflite_micro" if wheel == "tflm" else "ai_edge_litert")
    cases = [case for case in CASES if deciding.decides(case.kind) == wheel]
    data, inputs = deciding.model(cases)
    wanted = oracle.operator_outputs(data)
    run = oracle.tflm if wheel == "tflm" else oracle.litert
    (tensors,) = run(data, [inputs], wanted)
    for case, index in zip(cases, wanted, strict=True):
        assert tensors[index].reshape(-1).tolist() == list(case.expected), case


def test_float32_steps_show() -> None:
    """The cases would find them."""
    for case in CASES[::9]:
        data, inputs = deciding.model([case])
        graph = import_model(data)
        exact = numerics.effective_scale

        def rounded(factors, divisor=1.0):
            product = np.float32(1)
            for factor in factors:
                product *= np.float32(factor)
            return float(product / np.float32(divisor))

        if case.kind.startswith("RELU6"):
            continue
        with pytest.MonkeyPatch.context() as patch, np.errstate(over="ignore"):
            patch.setattr(numerics, "effective_scale", rounded)
            patch.setattr(accumulate, "_multipliers", accumulate._multipliers.__wrapped__)
            wrong = Interpreter(graph).run(*inputs)[0].reshape(-1).tolist()
        assert numerics.effective_scale is exact
        assert wrong != list(case.expected), case


def test_bounds_are_divided_in_float32() -> None:
    """Both oracles' RELU6 ends at 119 steps of this scale, of which 6 are fewer than 118.5 in double."""
    scale = float(np.float32(6 / 118.5))
    assert 6 / scale < 118.5
    element = ElementType(DType.INT8, Quant.per_tensor(scale, -128))
    assert numerics.quantize(6.0, element) == 119 - 128
