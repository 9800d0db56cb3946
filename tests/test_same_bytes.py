"""The same graph gives the same files, wherever its objects lie in memory and however strings are hashed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from microfold.ir.graph import Graph, State
from microfold.ir.node import Node, Value
from microfold.ir.parse import parse
from microfold.kernels.selection.candidates import Implementation
from microfold.plan.liveness import Storage
from tests.growth.families import FAMILIES, build
from tests.sampling import sampled
from tests.tools.print_builds import files_text

ROOT = Path(__file__).resolve().parents[1]
FOUND = ROOT / "tests" / "models" / "found"
# Compared, and hashed, by identity.
CLASSES = (Value, Node, State, Graph, Storage, Implementation)


@contextmanager
def hashes(factor: int) -> Iterator[None]:
    """Objects within are hashed as if they lay elsewhere: their sets are in another order for each factor."""
    old = {kind: kind.__hash__ for kind in CLASSES}
    try:
        for kind in CLASSES:
            kind.__hash__ = lambda self: id(self) // 16 * factor % 1000003  # type: ignore[method-assign, assignment]
        yield
    finally:
        for kind, method in old.items():
            kind.__hash__ = method  # type: ignore[method-assign]


def test_outputs_that_share_a_transpose() -> None:
    text = (FOUND / "nondeterministic.mf").read_text()
    texts = set()
    for factor in (1, 3, 7, 101, 7919, 999983, 500009, 31337):
        with hashes(factor):
            texts.add(files_text(parse(text)))
    assert len(texts) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(FAMILIES, 3))
def test_families(name: str) -> None:
    texts = set()
    for factor, optimize in ((1, "balanced"), (7919, "balanced")):
        with hashes(factor):
            texts.add(files_text(build(name, 24), optimize=optimize))
    assert len(texts) == 1


@pytest.mark.slow
def test_random_graphs_in_fresh_processes() -> None:
    printed = {_printed(seed) for seed in range(3)}
    assert len(printed) == 1
    (text,) = printed
    assert len(set(text.split())) > 15


def _printed(seed: int) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tests.tools.print_builds", "25", str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
