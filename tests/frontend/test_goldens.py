"""Imported models against recorded results of the oracle: needs no wheel."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.frontend.tflite import trace_model
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Node
from microfold.ir.types import Tensor
from tests import oracle
from tests.frontend import models
from tests.tools.make_goldens import checksums

NAMES = sorted(
    str(path.relative_to(models.GOLDENS).with_suffix("")) for path in models.GOLDENS.rglob("*.npz")
)


def test_goldens_are_there() -> None:
    assert len(NAMES) > 250


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    data = (models.MADE / f"{name}.tflite").read_bytes()
    traced = trace_model(data)
    interpreter = Interpreter(traced.graph)
    with np.load(models.GOLDENS / f"{name}.npz") as golden:
        indices = [int(i) for i in golden["tensors"]]
        for call in range(sum(key.startswith("crc_") for key in golden)):
            seen: dict[object, np.ndarray] = {}

            def observe(
                node: Node, results: tuple[Tensor, ...], seen: dict[object, np.ndarray] = seen
            ) -> None:
                seen.update(zip(node.outputs, (result.data for result in results), strict=True))

            interpreter.run(*oracle.inputs_of(traced, call), observe=observe)
            ours = {i: seen[traced.values[i]] for i in indices}
            wrong = [
                f"tensor {i} {traced.values[i]!r}"
                for i, mine, theirs in zip(
                    indices, checksums(ours, indices), golden[f"crc_{call}"], strict=True
                )
                if mine != theirs
            ]
            assert not wrong, f"call {call}: first difference in {wrong[0]}"
            for key in golden:
                if key.startswith(f"output_{call}_"):
                    fault = oracle.difference(ours[int(key.rsplit("_", 1)[1])], golden[key])
                    assert not fault, f"call {call}, {key}: {fault}"
